# The CUDA backend, asked for by OCTAVO_CUDA=ON. Nothing else in the build knows CUDA.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR
    "OCTAVO_CUDA=ON, but no CUDA compiler was found. Put nvcc on PATH or set CUDACXX, or configure "
    "with -DOCTAVO_CUDA=OFF: the CPU backends need no CUDA.")
endif()
# sm_90a, not sm_90: wgmma and setmaxnreg exist only in the architecture-specific target. Its PTX
# runs nowhere else, so machine code alone.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
find_package(CUDAToolkit 13.0 REQUIRED)
# Its types alone are used: the library itself is looked for when the program runs.
find_path(OCTAVO_CUBLASLT_HEADER cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(OCTAVO_CUBLASLT_HEADER)
if(NOT OCTAVO_CUBLASLT_HEADER)
  message(FATAL_ERROR
    "OCTAVO_CUDA=ON, but the CUDA toolkit has no cublasLt.h. Install the toolkit's cuBLAS headers "
    "(libcublas-dev), or configure with -DOCTAVO_CUDA=OFF.")
endif()

# Kernels are templates over formats, types and policies, and compiling them all takes minutes. `one`
# builds one configuration of each family, and device code is optimised as little as nvcc can, which
# takes a fifth to a half of the time of the largest files: enough to know that they compile, not to
# be used.
set(OCTAVO_CUDA_CONFIGS all CACHE STRING
  "Which configurations of the CUDA kernels to build: all, or one of each family")
set_property(CACHE OCTAVO_CUDA_CONFIGS PROPERTY STRINGS all one)
if(NOT OCTAVO_CUDA_CONFIGS MATCHES "^(all|one)$")
  message(FATAL_ERROR "OCTAVO_CUDA_CONFIGS is '${OCTAVO_CUDA_CONFIGS}', wanted all or one")
endif()

# ccache for nvcc, tried as for C++ in OctavoFlags.
if(OCTAVO_CCACHE_WORKS AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  if(NOT DEFINED OCTAVO_CCACHE_WORKS_CUDA)
    file(WRITE "${PROJECT_BINARY_DIR}/ccache_probe.cu" "__global__ void octavo_ccache_probe() {}\n")
    execute_process(
      COMMAND "${OCTAVO_CCACHE}" "${CMAKE_CUDA_COMPILER}" -c ccache_probe.cu -o ccache_probe.cu.o
      WORKING_DIRECTORY "${PROJECT_BINARY_DIR}"
      RESULT_VARIABLE octavo_ccache_result OUTPUT_QUIET ERROR_QUIET)
    if(octavo_ccache_result EQUAL 0)
      set(OCTAVO_CCACHE_WORKS_CUDA ON CACHE INTERNAL "")
    else()
      set(OCTAVO_CCACHE_WORKS_CUDA OFF CACHE INTERNAL "")
    endif()
  endif()
  if(OCTAVO_CCACHE_WORKS_CUDA)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${OCTAVO_CCACHE}")
  endif()
endif()

# The static runtime: what is built with CUDA starts on a machine without it, and says what is
# missing there.
add_library(octavo_cuda_libraries INTERFACE)
target_link_libraries(octavo_cuda_libraries INTERFACE CUDA::cudart_static)
# A program may have another CUDA runtime with exported symbols (torch does): ours must be hidden.
target_link_options(octavo_cuda_libraries INTERFACE LINKER:--exclude-libs,libcudart_static.a)

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
  # Nine tenths of the time that nvcc takes for a file of kernels are its headers. Where all kernels
  # are made, the rest is minutes for some files, and files apart use more cores.
  set(apart "")
  if(NOT OCTAVO_CUDA_CONFIGS STREQUAL "one")
    set(apart ${sources})
    list(FILTER apart INCLUDE REGEX "\\.cu$")
    list(FILTER sources EXCLUDE REGEX "\\.cu$")
  endif()
  octavo_unity(sources backend_cuda ${sources})
  list(APPEND sources ${apart})
  # --fmad=false: as on the host, a multiply and an add round twice unless the source says fma.
  # No -Wpedantic: it finds fault with the code that nvcc generates.
  octavo_objects(backend_cuda SOURCES ${sources} OPTIONS
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
    $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off,-Wall,-Wextra>)
  if(OCTAVO_WERROR)
    target_compile_options(octavo_backend_cuda PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Werror>)
  endif()
  if(OCTAVO_CUDA_CONFIGS STREQUAL "one")
    target_compile_definitions(octavo_backend_cuda PRIVATE OCTAVO_CUDA_ONE_CONFIG)
    target_compile_options(octavo_backend_cuda PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=max>)
  endif()
  target_link_libraries(octavo_backend_cuda PRIVATE octavo_cuda_libraries)
  set(${out} ON PARENT_SCOPE)
endfunction()
