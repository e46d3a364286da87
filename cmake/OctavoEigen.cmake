# Eigen (headers alone), which factors the Hessians of GPTQ. Where it is missing the rest of octavo is
# built, and GPTQ is an error that says what was missing (docs/design/gptq-factorisation.md).
find_path(OCTAVO_EIGEN_INCLUDE Eigen/Cholesky PATH_SUFFIXES eigen3
  DOC "Include folder of Eigen (Debian: libeigen3-dev)")
mark_as_advanced(OCTAVO_EIGEN_INCLUDE)
if(OCTAVO_EIGEN_INCLUDE)
  list(APPEND OCTAVO_LEFT_OUT "/gptq/cholesky_absent[.]cc$")
else()
  message(STATUS "GPTQ is not built (on Debian: libeigen3-dev)")
  list(APPEND OCTAVO_LEFT_OUT "/gptq/cholesky[.]cc$")
endif()
