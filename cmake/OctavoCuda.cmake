# The CUDA backend, asked for by OCTAVO_CUDA=ON. Nothing else in the build knows CUDA.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR
    "OCTAVO_CUDA=ON, but no CUDA compiler was found. Put nvcc on PATH or set CUDACXX, or configure "
    "with -DOCTAVO_CUDA=OFF: the CPU backends need no CUDA.")
endif()
# sm_90a, not sm_90: wgmma and setmaxnreg exist only in the architecture-specific target.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a)
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)

add_library(octavo_cuda_libraries INTERFACE)
target_link_libraries(octavo_cuda_libraries INTERFACE CUDA::cudart CUDA::cublasLt)

# octavo_cuda_backend(<out>): octavo/backend/cuda/** as one object library; <out> is whether there was
# anything to build.
function(octavo_cuda_backend out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/octavo/backend/cuda/*.cc" "${PROJECT_SOURCE_DIR}/octavo/backend/cuda/*.cu")
  list(FILTER sources EXCLUDE REGEX "_test\\.(cc|cu)$")
  if(NOT sources)
    message(WARNING "OCTAVO_CUDA=ON, but octavo/backend/cuda has no sources: building without it")
    set(${out} OFF PARENT_SCOPE)
    return()
  endif()
  # --fmad=false: as on the host, a multiply and an add round twice unless the source says fma.
  octavo_objects(backend_cuda SOURCES ${sources} OPTIONS
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
    $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off>)
  target_link_libraries(octavo_backend_cuda PRIVATE octavo_cuda_libraries)
  set(${out} ON PARENT_SCOPE)
endfunction()
