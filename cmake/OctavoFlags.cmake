# Compiler settings for every target of this project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()

# Only for this project's own trees: as a subproject the parent decides about optimisation.
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
  if(OCTAVO_QUICK)
    set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
  endif()
  # -Og compiles in half to two thirds of the time of -O1 under sanitizers; -g1 is what stack traces
  # need. A debugger wants -DCMAKE_CXX_FLAGS_DEBUG="-O0 -g".
  set(CMAKE_CXX_FLAGS_DEBUG "-Og -g1 -fno-omit-frame-pointer")
  # A source file takes about 250 MB here; looking for garbage before that is 5 % of GCC's time.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=400000>)
  endif()
endif()

# One interface target carries the flags, so that a room, a test and a benchmark cannot differ in
# them: the same source must round the same way wherever it is compiled.
add_library(octavo_flags INTERFACE)
target_compile_features(octavo_flags INTERFACE cxx_std_20)
target_compile_options(octavo_flags INTERFACE
  # A fused multiply-add rounds once where the contract says twice.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wpedantic>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in its own std::string operator+ (GCC bug 105651).
  target_compile_options(octavo_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(OCTAVO_WERROR)
  target_compile_options(octavo_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

# GCC and clang write -fsanitize=undefined findings and carry on; a test must fail on them.
if(OCTAVO_SANITIZE)
  target_compile_options(octavo_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${OCTAVO_SANITIZE} -fno-sanitize-recover=all>)
  target_link_options(octavo_flags INTERFACE -fsanitize=${OCTAVO_SANITIZE})
endif()
if(OCTAVO_COVERAGE)
  # Atomic counters: the thread pool would otherwise lose counts.
  target_compile_options(octavo_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:--coverage -fprofile-update=atomic>)
  target_link_options(octavo_flags INTERFACE --coverage)
endif()

# For wheels: the module and the program then run beside any libstdc++. libgcc stays shared: linked in
# it would need glibc 2.35.
add_library(octavo_runtime INTERFACE)
if(OCTAVO_STATIC_LIBSTDCXX)
  # Without the sections that nothing calls: std::random_device is one, and would need glibc 2.36.
  target_link_options(octavo_runtime INTERFACE -static-libstdc++ LINKER:--gc-sections)
endif()

find_package(Threads REQUIRED)
target_link_libraries(octavo_flags INTERFACE Threads::Threads)

# ccache when it is there and works: with a home it cannot write to it fails, and must not take the
# build with it. Tried once by compiling something.
option(OCTAVO_USE_CCACHE "Compile with ccache where it is installed" ON)
if(PROJECT_IS_TOP_LEVEL AND OCTAVO_USE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(OCTAVO_CCACHE ccache)
  mark_as_advanced(OCTAVO_CCACHE)
  if(OCTAVO_CCACHE AND NOT DEFINED OCTAVO_CCACHE_WORKS)
    file(WRITE "${PROJECT_BINARY_DIR}/ccache_probe.cc" "int octavo_ccache_probe;\n")
    execute_process(
      COMMAND "${OCTAVO_CCACHE}" "${CMAKE_CXX_COMPILER}" -c ccache_probe.cc -o ccache_probe.o
      WORKING_DIRECTORY "${PROJECT_BINARY_DIR}"
      RESULT_VARIABLE octavo_ccache_result OUTPUT_QUIET ERROR_QUIET)
    if(octavo_ccache_result EQUAL 0)
      set(OCTAVO_CCACHE_WORKS ON CACHE INTERNAL "")
    else()
      set(OCTAVO_CCACHE_WORKS OFF CACHE INTERNAL "")
    endif()
  endif()
  if(OCTAVO_CCACHE_WORKS)
    # Sloppiness: without it ccache leaves alone what uses a precompiled header, which the tests do.
    # Depend: what a file includes is taken from the compiler's own list. Otherwise each file that is
    # new to the cache is preprocessed twice.
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 "${OCTAVO_CCACHE}")
  endif()
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(OCTAVO_ARCH aarch64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(OCTAVO_ARCH x86_64)
else()
  set(OCTAVO_ARCH other)
endif()
