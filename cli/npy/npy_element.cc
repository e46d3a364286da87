#include "cli/npy/npy_element.h"

namespace octavo::cli {

Element npy_element(const std::string& op, const std::string& path, const NpyHeader& header,
                    const std::optional<std::string>& from) {
  const auto refuse = [&](const auto&... parts) {
    throw UsageError(text('[', op, "] '", path, "' holds ", descr_of(header), parts...));
  };
  const std::string where = text('[', op, "] --from:");
  if (header.kind == NpyKind::real) {
    const DType dtype = header.item_bytes == 2   ? DType::f16
                        : header.item_bytes == 4 ? DType::f32
                                                 : DType::f64;
    if (from) {
      const Element said = element_argument(where, *from);
      if (said.dtype != dtype) {
        refuse(" (", dtype_name(dtype), "), but --from says ", said.name(), "; leave out --from");
      }
    }
    return {.dtype = dtype};
  }
  if (!from) {
    refuse(", bytes that could mean anything; say what they are with --from, such as --from ",
           header.item_bytes == 1 ? "e4m3fn" : "bfloat16");
  }
  const Element said = element_argument(where, *from);
  const int wanted = element_bytes(said.dtype, said.format);
  if (wanted != header.item_bytes) {
    refuse(", elements of ", header.item_bytes, " bytes, but ", said.name(), " (--from) has ",
           wanted);
  }
  return said;
}

}  // namespace octavo::cli
