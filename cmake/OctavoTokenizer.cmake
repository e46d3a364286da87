# PCRE2 and utf8proc, which tokenizers are made with: regular expressions with look-ahead and Unicode
# classes, and normal forms. Where one is missing the rest of octavo is built, and making a tokenizer
# is an error that says what was missing. Debian's archives (.a) come before shared libraries: what is
# installed, and a wheel, then needs nothing more than before.
find_path(OCTAVO_PCRE2_INCLUDE pcre2.h DOC "Include folder of PCRE2 (Debian: libpcre2-dev)")
find_library(OCTAVO_PCRE2_LIBRARY NAMES libpcre2-8.a pcre2-8 DOC "PCRE2 for UTF-8")
find_path(OCTAVO_UTF8PROC_INCLUDE utf8proc.h DOC "Include folder of utf8proc (Debian: libutf8proc-dev)")
find_library(OCTAVO_UTF8PROC_LIBRARY NAMES libutf8proc.a utf8proc DOC "utf8proc")
mark_as_advanced(OCTAVO_PCRE2_INCLUDE OCTAVO_PCRE2_LIBRARY OCTAVO_UTF8PROC_INCLUDE
  OCTAVO_UTF8PROC_LIBRARY)

# octavo_tokenizer_library(<part> <include> <library> <Debian package>): links it, or takes
# <part>_absent.cc into the room in place of <part>.cc.
function(octavo_tokenizer_library part include library package)
  if(include AND library)
    target_include_directories(octavo_flags SYSTEM INTERFACE "${include}")
    target_link_libraries(octavo_flags INTERFACE "${library}")
    set(left_out "/tokenizer/${part}_absent[.]cc$")
  else()
    message(STATUS "Tokenizers are not built (on Debian: ${package})")
    set(left_out "/tokenizer/${part}[.]cc$")
  endif()
  set(OCTAVO_LEFT_OUT ${OCTAVO_LEFT_OUT} "${left_out}" PARENT_SCOPE)
endfunction()
octavo_tokenizer_library(
  expression "${OCTAVO_PCRE2_INCLUDE}" "${OCTAVO_PCRE2_LIBRARY}" libpcre2-dev)
octavo_tokenizer_library(
  normal_form "${OCTAVO_UTF8PROC_INCLUDE}" "${OCTAVO_UTF8PROC_LIBRARY}" libutf8proc-dev)
