# What `cmake --install` puts where. Components: `dev` (headers, library, CMake package), `program`
# (the CLI), `python` (what goes into a wheel).
include(CMakePackageConfigHelpers)

if(DEFINED SKBUILD)
  return()  # A wheel carries the module and the program; cli/ and python/ say where those go.
endif()

# The public headers are a list; what is not on it is not part of the interface.
set(octavo_header_list "${PROJECT_SOURCE_DIR}/cmake/public_headers.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${octavo_header_list}")
file(STRINGS "${octavo_header_list}" octavo_headers REGEX "^octavo/")
list(TRANSFORM octavo_headers REPLACE "[ #].*" "")
foreach(header IN LISTS octavo_headers)
  if(NOT EXISTS "${PROJECT_SOURCE_DIR}/${header}")
    message(FATAL_ERROR "${octavo_header_list} lists ${header}, and there is no such file")
  endif()
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

# For builds without CMake: c++ -std=c++20 main.cc $(pkg-config --cflags --libs octavo)
# Its paths start at its own place: a prefix may be moved, or given to `cmake --install` alone.
file(RELATIVE_PATH octavo_to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file("${PROJECT_SOURCE_DIR}/cmake/octavo.pc.in" "${PROJECT_BINARY_DIR}/octavo.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/octavo.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)
