// Execution options of Python layers: the caller's allocator, log and stream.
#pragma once

#include "bind.h"
#include "octavo/nn/linear/linear_pass.h"

namespace octavo::python {

// A Python callable that the library may copy, call and destroy without holding the GIL.
class Callback {
 public:
  explicit Callback(nb::object function) : owner_(kept_alive(std::move(function))) {}
  template <typename... Arguments>
  nb::object operator()(const Arguments&... arguments) const {  // with the GIL
    return nb::borrow(static_cast<PyObject*>(owner_.get()))(arguments...);
  }

 private:
  std::shared_ptr<void> owner_;
};

// allocate(bytes) makes memory and returns its address and its owner; none: the library does.
MakeTensor maker(nb::object allocate, int cuda);
// Log messages go to Python's logger "octavo", each once in a process.
LinearRun run_of(nb::object allocate, int cuda, std::uintptr_t stream);

void bind_attention_pass(nb::module_& module);  // after ModuleQuantizers

}  // namespace octavo::python
