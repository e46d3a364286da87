#include "nn_run.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "octavo/base/error.h"

namespace octavo::python {
namespace {

// Never destroyed: a backward may still run while the interpreter exits.
Log& notes() {
  static Log* const kNotes = new Log([](std::string_view message) {
    const nb::gil_scoped_acquire held;
    nb::module_::import_("logging").attr("getLogger")("octavo").attr("warning")(
        "%s", std::string(message));
  });
  return *kNotes;
}

}  // namespace

MakeTensor maker(nb::object allocate, int cuda) {
  if (allocate.is_none()) return {};
  return [allocate = Callback(std::move(allocate)), cuda](View like) {
    const nb::gil_scoped_acquire held;
    const auto bytes = dense_bytes(like.shape, like.dtype, like.format, like.packed);
    const auto [address, owner] = nb::cast<std::pair<std::uintptr_t, nb::object>>(allocate(bytes));
    // As torch's FakeTensorMode has it, which allocates nothing.
    check(address != 0 || bytes == 0, ErrorCode::unsupported, "allocate", "got no memory for ",
          bytes, " bytes; call octavo where its arrays are in memory");
    like.data = reinterpret_cast<void*>(address);
    like.device = device_of(cuda);
    return Tensor::adopt(like, kept_alive(owner));
  };
}

LinearRun run_of(nb::object allocate, int cuda, std::uintptr_t stream) {
  LinearRun run;
  run.log = &notes();
  run.stream = stream_of(stream);
  run.make = maker(std::move(allocate), cuda);
  return run;
}

}  // namespace octavo::python
