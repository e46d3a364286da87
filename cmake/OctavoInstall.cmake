# What `cmake --install` puts where. Components: `dev` (headers, library, CMake package), `program`
# (the CLI), `python` (what goes into a wheel).
include(CMakePackageConfigHelpers)

if(DEFINED SKBUILD)
  return()  # A wheel carries the module and the program; cli/ and python/ say where those go.
endif()

# Public headers: all of a room's headers except *_internal.h; of backend/ only the registry and the
# kernel interface (kernels.h). What is not installed here is not part of the interface.
file(GLOB_RECURSE octavo_headers CONFIGURE_DEPENDS
  RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/octavo/*.h")
list(FILTER octavo_headers EXCLUDE REGEX "_internal\\.h$")
list(FILTER octavo_headers EXCLUDE REGEX "^octavo/backend/")
foreach(door IN ITEMS registry.h kernel_clock.h kernels.h producer.h gemm_job.h accumulator_names.h
                      attention_job.h device.h)
  if(EXISTS "${PROJECT_SOURCE_DIR}/octavo/backend/${door}")
    list(APPEND octavo_headers "octavo/backend/${door}")
  endif()
endforeach()
foreach(header IN LISTS octavo_headers)
  get_filename_component(folder "${header}" DIRECTORY)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${folder}" COMPONENT dev)
endforeach()

install(TARGETS octavo EXPORT octavoTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

set(octavo_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/octavo")
install(EXPORT octavoTargets NAMESPACE octavo:: DESTINATION "${octavo_package_dir}" COMPONENT dev)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/octavoConfig.cmake.in" "${PROJECT_BINARY_DIR}/octavoConfig.cmake"
  INSTALL_DESTINATION "${octavo_package_dir}")
# SameMinorVersion: before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/octavoConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/octavoConfig.cmake" "${PROJECT_BINARY_DIR}/octavoConfigVersion.cmake"
  DESTINATION "${octavo_package_dir}" COMPONENT dev)
