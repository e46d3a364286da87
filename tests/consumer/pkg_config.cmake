# Builds and runs the consumer's program without CMake's package: flags come from pkg-config alone.
set(ENV{PKG_CONFIG_LIBDIR} "${PREFIX}/${LIBDIR}/pkgconfig")
execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs octavo
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
set(source "${CMAKE_CURRENT_LIST_DIR}/project")
execute_process(
  COMMAND "${CXX}" -std=c++20 "${source}/main.cc" "${source}/link.cc" ${flags} -o "${PROGRAM}"
  COMMAND_ERROR_IS_FATAL ANY)
set(ENV{LD_LIBRARY_PATH} "${PREFIX}/${LIBDIR}")
execute_process(COMMAND "${PROGRAM}" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
