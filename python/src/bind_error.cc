// octavo::Error becomes the built-in exception a Python programmer would expect; octavo defines no
// exception class of its own in Python.
#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/base/file_error.h"

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

nb::object message_of(const Error& error) {
  // A message may quote a part of the caller's text that was cut inside a character.
  const std::string_view what = error.what();
  return nb::steal(
      PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "replace"));
}

// OSError(errno, strerror, filename) makes a FileNotFoundError of ENOENT, and so on. The message is
// strerror, because that is what str() shows.
void raise_os_error(const FileError& error, const nb::object& message) {
  const nb::object file = nb::steal(PyUnicode_DecodeFSDefaultAndSize(
      error.file().data(), static_cast<Py_ssize_t>(error.file().size())));
  if (!file.is_valid()) return;
  const nb::object made = nb::steal(
      PyObject_CallFunction(PyExc_OSError, "iOO", error.number(), message.ptr(), file.ptr()));
  if (made.is_valid())
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const FileError& error) {
    const nb::object message = message_of(error);
    if (message.is_valid()) raise_os_error(error, message);
  } catch (const Error& error) {
    const nb::object message = message_of(error);
    if (message.is_valid()) PyErr_SetObject(exception_type(error.code()), message.ptr());
  }
}

}  // namespace

void bind_error(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace octavo::python
