// octavo::Error becomes the built-in exception a Python programmer would expect; octavo defines no
// exception class of its own in Python.
#include "bind.h"
#include "octavo/base/error.h"

namespace octavo::python {
namespace {

PyObject* exception_type(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return PyExc_ValueError;
    case ErrorCode::wrong_type:
      return PyExc_TypeError;
    case ErrorCode::io:
      return PyExc_OSError;
    case ErrorCode::unsupported:
    case ErrorCode::internal:
    case ErrorCode::device:
      break;
  }
  return PyExc_RuntimeError;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    // A message may quote a part of the caller's text that was cut inside a character.
    const std::string_view what = error.what();
    const nb::object message = nb::steal(
        PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "replace"));
    if (message.is_valid()) PyErr_SetObject(exception_type(error.code()), message.ptr());
  }
}

}  // namespace

void bind_error(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace octavo::python
