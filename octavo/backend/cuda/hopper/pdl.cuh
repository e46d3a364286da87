// Programmatic dependent launch, device side (griddepcontrol). pdl_launch.h is the host side.
#pragma once

namespace octavo::cuda {

// A kernel that is launched to begin early (pdl_launch.h) waits here until those before it
// in the stream are over and all that they wrote is seen: before it reads or writes what they may.
__device__ __forceinline__ void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// From here on blocks of the next kernel may take the place of blocks that have ended.
__device__ __forceinline__ void pdl_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace octavo::cuda
