# Tests. GoogleTest executables, one per room or test folder to keep linking cheap; ctest sees one
# test per executable, and each writes its cases as XML for the summary of `make test`.
#
# A file's name decides where it goes:
#   x_test.cc           into its folder's executable, label `fast`
#   every_*_test.cc     an executable of its own, label `fast`: all inputs of a kind. Sanitized and
#                       emulated runs take a part of its cases, else they would take half an hour
#   *_slow_test.cc      an executable of its own, label `slow`; optimised builds for this machine only
#   *thread*_test.cc, *fork*_test.cc
#                       an executable of its own, labels `fast` and `thread`: what tsan runs

# The sources that libgtest-dev installs serve where its compiled library cannot: cross builds and
# machines that have the sources only.
if(NOT CMAKE_CROSSCOMPILING)
  find_package(GTest QUIET)
endif()
if(NOT TARGET GTest::gtest_main)
  find_path(OCTAVO_GTEST_SOURCE NAMES googletest/src/gtest-all.cc
    PATHS /usr/src/googletest NO_CMAKE_FIND_ROOT_PATH
    DOC "GoogleTest source tree, used where no compiled GoogleTest fits")
  if(NOT OCTAVO_GTEST_SOURCE)
    message(FATAL_ERROR "No GoogleTest found: install libgtest-dev, set OCTAVO_GTEST_SOURCE to its "
      "source tree, or configure with -DOCTAVO_BUILD_TESTS=OFF")
  endif()
  add_library(octavo_gtest STATIC EXCLUDE_FROM_ALL
    "${OCTAVO_GTEST_SOURCE}/googletest/src/gtest-all.cc"
    "${OCTAVO_GTEST_SOURCE}/googletest/src/gtest_main.cc")
  target_include_directories(octavo_gtest SYSTEM PUBLIC "${OCTAVO_GTEST_SOURCE}/googletest/include")
  target_include_directories(octavo_gtest PRIVATE "${OCTAVO_GTEST_SOURCE}/googletest")
  target_link_libraries(octavo_gtest PUBLIC Threads::Threads)
  target_compile_options(octavo_gtest PRIVATE $<$<CONFIG:Release>:-O1>)
  add_library(GTest::gtest_main ALIAS octavo_gtest)
  add_library(GTest::gtest ALIAS octavo_gtest)
endif()

set(OCTAVO_TEST_XML_DIR "${PROJECT_BINARY_DIR}/test-xml")

# The target that `tsan` builds instead of everything.
add_custom_target(octavo_thread_tests)

# Twins of test programs, built when asked for, under label `sanitized`.
add_custom_target(octavo_sanitized_tests)

# What a cross build builds and runs instead of everything, under label `arch`: tests of code that
# differs between architectures, and of numbers that pass through it. Rooms, then folders of tests/,
# then programs of tests/exact and tests/conformance.
add_custom_target(octavo_arch_tests)
string(CONCAT OCTAVO_TEST_ARCH_PROGRAMS "^("
  "backend|base|convert|format|ops|quant|round|scale|tensor"
  "|agreement|attention|fp_env|gemm|oracle|support"
  "|every_.*|scaled_ties|golden_vectors|quantize_vectors|scale_search"
  ")_test$")

# octavo_test_part(<test> <program>): where every instruction costs more (sanitizers, coverage, an
# emulator), a part of the cases of the longest programs, in each place another one.
set(OCTAVO_TEST_SHARED_PROGRAMS "^(every_.*|agreement|attention|gemm)_test$")
set(OCTAVO_TEST_SHARED_EMULATED "^(every_.*|golden_vectors)_test$")
function(octavo_test_part test program)
  set(part "")
  if(NOT CMAKE_CROSSCOMPILING)
    if(program MATCHES "${OCTAVO_TEST_SHARED_PROGRAMS}")
      set(part GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=0)
    endif()
  elseif(program MATCHES "^(agreement|attention|every_attention|gemm)_test$")
    # Each a shard without the cases that take a minute there, of sums in f64.
    set(shard 5)
    if(program STREQUAL "attention_test")
      set(shard 3)
    endif()
    set(part GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=${shard})
    # Most of their time was `reference` and `portable`, which are the same source on every
    # architecture; tests of single codes still have them.
    if(OCTAVO_ARCH STREQUAL "x86_64" AND NOT program MATCHES "^every_")
      list(APPEND part OCTAVO_TEST_BACKEND=cpu/avx2)
    endif()
  elseif(program MATCHES "${OCTAVO_TEST_SHARED_EMULATED}")
    set(part GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=1)
  endif()
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT ${part})
endfunction()

# In a fresh build tree ctest knows no times, and starts tests in the order of their names: what was
# long and late ran alone at the end. Those that take more than ten seconds come first.
set(OCTAVO_TEST_COST_LONG 100)
set(OCTAVO_TEST_LONG_PROGRAMS
  "^(every_.*|(agreement|attention|checkpoint|gemm|gemm_thread|pipeline|resume_fork|shared_run_fork)_test)$")

# How test code is compiled: -Og takes half the time of -O3, and the programs run about as fast. The
# library that it calls keeps its flags. Checks for undefined behaviour in the code of tests take half
# the time of a sanitized test's compilation and protect no user: the library alone has them; in
# preset `dev` the address sanitizer is in both. The warnings that are left out follow values through inlined library
# code, and GCC 12 is wrong about std::string there.
function(octavo_test_flags name)
  target_link_libraries(${name} PRIVATE octavo_flags GTest::gtest_main)
  # Tests read golden vectors from the source tree, wherever they are started.
  target_compile_definitions(${name} PRIVATE OCTAVO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og>)
  if(OCTAVO_SANITIZE MATCHES "undefined")
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE
      -Wno-array-bounds -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
endfunction()

# Headers of nearly every test, parsed once per build tree. An executable, because code for executables
# and for libraries is compiled differently, and a precompiled header must agree.
add_executable(octavo_test_headers EXCLUDE_FROM_ALL
  "${PROJECT_SOURCE_DIR}/tests/support/test_headers.cc")
octavo_test_flags(octavo_test_headers)
target_precompile_headers(octavo_test_headers PRIVATE
  "${PROJECT_SOURCE_DIR}/tests/support/test_headers.h")

# octavo_sanitized_twin(<program> TIMEOUT <seconds> COMMAND <word>...): where OCTAVO_SANITIZED_TWIN is
# ON, <program>_sanitized: the objects of a test program linked a second time, with the library under
# sanitizers, and a test of that name which runs the command. Test code itself is not instrumented:
# errors in it harm no user, and instrumenting it takes longer than all of the library does. What
# tests hand to the library from the heap has red zones all the same; arrays on their stack have none.
function(octavo_sanitized_twin program)
  if(NOT OCTAVO_SANITIZED_TWIN)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND")
  set(objects "")
  foreach(target IN ITEMS ${program} octavo_test_support)
    list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:${target}>,EXCLUDE,[.]gch$>")
  endforeach()
  set(twin ${program}_sanitized)
  add_executable(${twin} EXCLUDE_FROM_ALL ${objects})
  set_target_properties(${twin} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${twin} PRIVATE octavo_sanitized octavo_flags GTest::gtest_main)
  target_link_options(${twin} PRIVATE -fsanitize=address,undefined)
  add_dependencies(octavo_sanitized_tests ${twin})
  add_test(NAME ${twin} COMMAND ${arg_COMMAND})
  set_tests_properties(${twin} PROPERTIES
    LABELS sanitized TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77)
  octavo_test_part(${twin} ${program})
  if(program MATCHES "${OCTAVO_TEST_LONG_PROGRAMS}")
    set_tests_properties(${twin} PROPERTIES COST ${OCTAVO_TEST_COST_LONG})
  endif()
endfunction()

# octavo_gtest(<name> SOURCES <file>... LABELS <label>...): one executable, one ctest test.
function(octavo_gtest name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LABELS")
  octavo_unity(arg_SOURCES ${name} ${arg_SOURCES})
  add_executable(${name} ${arg_SOURCES})
  octavo_test_flags(${name})
  target_precompile_headers(${name} REUSE_FROM octavo_test_headers)
  target_link_libraries(${name} PRIVATE octavo_test_support octavo_static)
  add_test(NAME ${name} COMMAND ${name} "--gtest_output=xml:${OCTAVO_TEST_XML_DIR}/${name}.xml")
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77)
  if(CMAKE_CROSSCOMPILING OR OCTAVO_SANITIZE OR OCTAVO_COVERAGE)
    octavo_test_part(${name} ${name})
  endif()
  if(name MATCHES "${OCTAVO_TEST_LONG_PROGRAMS}")
    set_tests_properties(${name} PROPERTIES COST ${OCTAVO_TEST_COST_LONG})
  endif()
  if("thread" IN_LIST arg_LABELS)
    add_dependencies(octavo_thread_tests ${name})
  endif()
  if(name MATCHES "${OCTAVO_TEST_ARCH_PROGRAMS}")
    add_dependencies(octavo_arch_tests ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS arch)
  endif()
  if(NOT "slow" IN_LIST arg_LABELS)
    octavo_sanitized_twin(${name} TIMEOUT ${arg_TIMEOUT}
      COMMAND ${name}_sanitized "--gtest_output=xml:${OCTAVO_TEST_XML_DIR}/${name}_sanitized.xml")
  endif()
endfunction()

# octavo_test(<name> <test file>... [SUPPORT <file>...]): sorts test files into executables by their
# names, as told above; support files are linked into each.
function(octavo_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SUPPORT")
  set(shared "")
  foreach(file IN LISTS arg_UNPARSED_ARGUMENTS)
    get_filename_component(stem "${file}" NAME_WE)
    if(stem MATCHES "_slow_test$")
      if(OCTAVO_SANITIZE OR OCTAVO_COVERAGE OR CMAKE_CROSSCOMPILING)
        continue()
      endif()
      octavo_gtest(${stem} SOURCES "${file}" ${arg_SUPPORT} LABELS slow TIMEOUT 3600)
    elseif(stem MATCHES "(thread|fork).*_test$")
      octavo_gtest(${stem} SOURCES "${file}" ${arg_SUPPORT} LABELS fast thread TIMEOUT 600)
    elseif(stem MATCHES "^every_")
      octavo_gtest(${stem} SOURCES "${file}" ${arg_SUPPORT} LABELS fast TIMEOUT 900)
    else()
      list(APPEND shared "${file}")
    endif()
  endforeach()
  if(shared)
    octavo_gtest(${name} SOURCES ${shared} ${arg_SUPPORT} LABELS fast TIMEOUT 900)
  endif()
endfunction()
