# Joined sources: several files of a target compiled as one, in half of the time, because most of what
# a file takes is its headers. For whole builds (make, pip, tests). Whoever changes one file at a time
# is better off without it: the others of its group are compiled again.
option(OCTAVO_UNITY "Compile several sources as one: whole builds take half of the time (needs Python 3)" OFF)
set(OCTAVO_UNITY_MOST 8 CACHE STRING "The most sources that are compiled as one")
set(OCTAVO_UNITY_FOLDER "${PROJECT_BINARY_DIR}/unity" CACHE PATH
  "Where the files are that include several; build trees of one checkout may share it, for ccache")
mark_as_advanced(OCTAVO_UNITY_MOST OCTAVO_UNITY_FOLDER)

if(OCTAVO_UNITY)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  # GCC warns of members whose types are in an anonymous namespace, as of a header's, in all but the
  # file that it was told to compile.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endif()

# octavo_unity(<out> <name> <file>...): the files themselves, or what compiles them together.
# unity_groups.py says which may be. A change of any of them can change that, so CMake looks again.
function(octavo_unity out name)
  set(sources ${ARGN})
  if(OCTAVO_UNITY AND ARGC GREATER 3)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cmake/unity_groups.py"
        "${PROJECT_SOURCE_DIR}" "${OCTAVO_UNITY_FOLDER}/${name}" ${OCTAVO_UNITY_MOST} ${ARGN}
      OUTPUT_VARIABLE joined OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE "\n" ";" sources "${joined}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
  endif()
  set(${out} "${sources}" PARENT_SCOPE)
endfunction()
