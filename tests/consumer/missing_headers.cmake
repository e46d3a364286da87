# A build without the headers of one library names that one, its Debian package, and no other.
function(expect_refusal what words)
  file(REMOVE_RECURSE "${BUILD_DIR}")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${BUILD_DIR}" -G "${GENERATOR}"
      -DCMAKE_CXX_COMPILER=${CXX} -DOCTAVO_BUILD_TESTS=OFF -DOCTAVO_BUILD_EXAMPLES=OFF
      -DOCTAVO_USE_CCACHE=OFF ${ARGN}
    RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(code EQUAL 0)
    message(FATAL_ERROR "without ${what} the build was configured")
  endif()
  if(NOT said MATCHES "${words}")
    message(FATAL_ERROR "without ${what} it said: ${said}")
  endif()
endfunction()

foreach(case IN ITEMS "fmt libfmt-dev" "CLI11 libcli11-dev" "nlohmann_json nlohmann-json3-dev")
  separate_arguments(case)
  list(GET case 0 name)
  list(GET case 1 package)
  expect_refusal(${name} "not there: ${name}[.] On Debian: apt-get install ${package}[.]"
    -DOCTAVO_BUILD_CLI=ON -DCMAKE_DISABLE_FIND_PACKAGE_${name}=ON)
endforeach()
expect_refusal(Python.h "headers [(]Python[.]h[)][.] On Debian: apt-get install python3-dev"
  -DOCTAVO_BUILD_CLI=OFF -DOCTAVO_BUILD_PYTHON=ON "-DPython_INCLUDE_DIR=${BUILD_DIR}/none")
file(REMOVE_RECURSE "${BUILD_DIR}")
