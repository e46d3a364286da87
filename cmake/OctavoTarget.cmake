# How rooms become the library. A room is a folder; its sources are found, not listed, so that adding
# a file is one step. Tests (*_test.cc) stand beside their sources and never enter the library.

# octavo_sources(<out> <folder>...): the library sources of the folders themselves, not below them.
function(octavo_sources out)
  set(found "")
  foreach(folder IN LISTS ARGN)
    file(GLOB here CONFIGURE_DEPENDS "${folder}/*.cc")
    list(APPEND found ${here})
  endforeach()
  list(FILTER found EXCLUDE REGEX "_test\\.cc$")
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# octavo_objects(<name> SOURCES <file>... [OPTIONS <flag>...] [COLD]): one object library, joined to
# octavo. With no sources it does nothing: a room that is still empty is not an error. COLD sources have
# no loops over data: they are compiled with -O1, in three quarters of the time.
function(octavo_objects name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COLD" "" "SOURCES;OPTIONS")
  if(NOT arg_SOURCES)
    return()
  endif()
  # Kernels of instruction sets are large files, and few of what they include are headers.
  if(NOT arg_OPTIONS)
    octavo_unity(arg_SOURCES ${name} ${arg_SOURCES})
  endif()
  add_library(octavo_${name} OBJECT ${arg_SOURCES})
  target_include_directories(octavo_${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(octavo_${name} PRIVATE octavo_flags)
  target_compile_options(octavo_${name} PRIVATE ${arg_OPTIONS})
  set_property(GLOBAL APPEND PROPERTY OCTAVO_OBJECTS octavo_${name})
  set(precompiled OCTAVO_PRECOMPILED)
  if(arg_COLD)
    set(precompiled OCTAVO_COLD_PRECOMPILED)
    target_compile_options(octavo_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(octavo_precompiles AND NOT arg_OPTIONS)
    octavo_precompile(octavo_${name} ${precompiled})
  endif()
  if(OCTAVO_SANITIZED_TWIN)
    octavo_twin_objects(${name} "${arg_SOURCES}" "${arg_OPTIONS}")
  endif()
endfunction()

if(OCTAVO_SANITIZED_TWIN AND (OCTAVO_SANITIZE OR OCTAVO_CUDA OR OCTAVO_COVERAGE))
  message(FATAL_ERROR "OCTAVO_SANITIZED_TWIN belongs to a plain build: not with OCTAVO_SANITIZE, "
    "OCTAVO_COVERAGE or OCTAVO_CUDA")
endif()

# The same sources under the address and undefined behaviour sanitizers, with the flags of preset
# `dev`, for octavo_sanitized: the library that the twins of test programs are linked with
# (octavo_sanitized_twin in OctavoTest). It is a shared library, so that linking many programs is
# cheap, and exports all names, because tests call hidden ones.
function(octavo_twin_objects name sources options)
  set(twin octavo_${name}_twin)
  add_library(${twin} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${twin} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${twin} PRIVATE octavo_flags)
  set_target_properties(${twin} PROPERTIES CXX_VISIBILITY_PRESET default)
  target_compile_options(${twin} PRIVATE ${options} -Og -g1 -fno-omit-frame-pointer -UNDEBUG
    -fno-semantic-interposition -fsanitize=address,undefined -fno-sanitize-recover=all)
  # A minute and a half for one of its files, of templates whose arithmetic the drivers made; few
  # machines that run these tests run it.
  if(name STREQUAL "backend_cpu_amx")
    target_compile_options(${twin} PRIVATE -fno-sanitize=undefined)
  endif()
  set_property(GLOBAL APPEND PROPERTY OCTAVO_TWIN_OBJECTS ${twin})
  if(NOT options)
    octavo_precompile(${twin} OCTAVO_TWIN_PRECOMPILED)
  endif()
endfunction()

# A third of the time that a source file takes is the standard library's headers. One set for all
# targets with the same flags, made by the first; a global property named <set> knows which that is.
# Not with ccache, for which objects of two build trees are then different: without it the Python
# package is made of the objects of `release`. Sanitized objects are shared with no other tree. Not
# for cross builds: they show what forgets an #include. With the header GCC 12 warns of a copy of
# 2^63 bytes in std::string, which there is none of.
set(octavo_precompiles ON)
if(CMAKE_CROSSCOMPILING OR (OCTAVO_CCACHE_WORKS AND NOT OCTAVO_SANITIZE))
  set(octavo_precompiles OFF)
endif()
function(octavo_precompile target set)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
  endif()
  get_property(owner GLOBAL PROPERTY ${set})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
    return()
  endif()
  target_precompile_headers(${target} PRIVATE
    <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional>
    <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <utility>
    <variant> <vector>)
  set_property(GLOBAL PROPERTY ${set} ${target})
endfunction()

# octavo_room(<name> [HOT <regex>]): octavo/<name>/*.cc and the sources of its sub-rooms as one object
# library; or as two, where only the sources that match have loops over data. OCTAVO_LEFT_OUT has
# expressions of files that are not built here: each belongs to a library that is missing, or is what
# stands in for one that is there.
function(octavo_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HOT" "")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/octavo/${name}/*.cc")
  foreach(left_out IN ITEMS "_test\\.cc$" LISTS OCTAVO_LEFT_OUT)
    list(FILTER sources EXCLUDE REGEX "${left_out}")
  endforeach()
  if(NOT arg_HOT)
    octavo_objects(${name} SOURCES ${sources})
    return()
  endif()
  set(cold ${sources})
  list(FILTER cold EXCLUDE REGEX "${arg_HOT}")
  list(FILTER sources INCLUDE REGEX "${arg_HOT}")
  octavo_objects(${name} SOURCES ${cold} COLD)
  octavo_objects(${name}_hot SOURCES ${sources})
endfunction()

# octavo_isa(<name> <arch> [flag...]): octavo/backend/cpu/isa/<name>/*.cc, only on <arch>, with flags of its
# own. Code here runs only after the registry saw the CPU report what the flags assume. An inline
# function compiled under such flags must not be the copy that the linker keeps for all callers: the
# folder keeps its helpers static or in its own namespace, and the test isa_symbols checks it.
function(octavo_isa name arch)
  if(arch STREQUAL "any" OR arch STREQUAL OCTAVO_ARCH)
    octavo_sources(sources "${PROJECT_SOURCE_DIR}/octavo/backend/cpu/isa/${name}")
    octavo_objects(backend_cpu_${name} SOURCES ${sources} OPTIONS ${ARGN})
    set_property(GLOBAL APPEND PROPERTY OCTAVO_ISA_FOLDERS ${name})
    if(ARGN AND TARGET octavo_backend_cpu_${name})
      set_property(GLOBAL APPEND PROPERTY OCTAVO_SPECIAL_OBJECTS octavo_backend_cpu_${name})
    endif()
  endif()
endfunction()
