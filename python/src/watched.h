// Long work of the library, called from Python.
#pragma once

#include <exception>
#include <string>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/base/progress.h"

namespace octavo::python {

// Runs `work` without the GIL and hands its progress to Python. An exception of the callback, and
// Ctrl-C, stop the work; they are raised when it has cleaned up.
template <typename Work>
auto watched(const nb::object& callback, Work&& work) {
  std::exception_ptr raised;
  const OnProgress on_progress = [&](const Progress& progress) {
    const nb::gil_scoped_acquire held;
    try {
      // Only the main thread sees signals; it is one of those that work.
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!callback.is_none())
        callback(progress.bytes_done, progress.bytes_total, progress.seconds,
                 std::string(progress.current));
      return true;
    } catch (...) {
      raised = std::current_exception();
      return false;
    }
  };
  try {
    const nb::gil_scoped_release released;
    return work(on_progress);
  } catch (const Error&) {
    if (raised) std::rethrow_exception(raised);
    throw;
  }
}

}  // namespace octavo::python
