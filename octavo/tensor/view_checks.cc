#include "octavo/tensor/view_checks.h"

#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"

namespace octavo {

void check_view(const View& view, std::string_view op, std::string_view what) {
  check(view.strides.rank() == view.shape.rank(), ErrorCode::invalid_argument, op, what, " has ",
        view.shape.rank(), " dimensions but ", view.strides.rank(), " strides");
  if (view.dtype == DType::code) {
    if (const auto problem = format_problem(view.format)) {
      fail(ErrorCode::invalid_argument, op, what, " has a format that cannot be: ", *problem);
    }
  }
  const std::int64_t count = element_count(view.shape);
  (void)dense_bytes(view.shape, view.dtype, view.format, view.packed);
  const int last = view.shape.rank() - 1;
  check(!view.packed || last < 0 || view.shape[last] <= 1 || view.strides[last] == 0,
        ErrorCode::invalid_argument, op, what,
        " is packed, and packed codes are dense along the last dimension: its stride must be 0; "
        "unpack to stride");
  check(view.data != nullptr || count == 0, ErrorCode::invalid_argument, op, what, " has ", count,
        " elements but no memory (null data)");
}

void check_on_cpu(const View& view, std::string_view op, std::string_view what) {
  check(view.device.kind == DeviceKind::cpu, ErrorCode::unsupported, op, what, " is on a GPU (",
        to_string(view.device),
        "), and this is done on the CPU only; copy it there first (to_host)");
}

void check_output(const View& out, std::string_view op) {
  check(!out.read_only, ErrorCode::invalid_argument, op,
        "the output is read-only; give memory that may be written");
  check(is_dense(out), ErrorCode::invalid_argument, op,
        "the output is not contiguous; give a contiguous (row-major) buffer, or none to get a new "
        "one");
}

}  // namespace octavo
