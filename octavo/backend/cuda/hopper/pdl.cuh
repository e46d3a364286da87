// Programmatic dependent launch, device side (griddepcontrol). pdl_launch.h is the host side.
#pragma once

namespace octavo::cuda {

// A kernel of a PDL launch (pdl_launch.h) waits here until the kernels before it in the stream have
// completed and their writes are visible. It must not read or write their memory before.
__device__ __forceinline__ void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Once all blocks have called this or exited, blocks of the next kernel may start where resources
// are free.
__device__ __forceinline__ void pdl_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace octavo::cuda
