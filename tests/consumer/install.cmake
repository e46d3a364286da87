# Installs the built tree into an empty prefix: leftovers of an older version must not help.
file(REMOVE_RECURSE "${PREFIX}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${PREFIX}" --component dev
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
