#include <array>
#include <memory>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/tensor/dlpack.h"
#include "octavo/tensor/dlpack_internal.h"

namespace octavo {

using namespace dlpack;

namespace {

constexpr std::string_view kTo = "to_dlpack";

// What goes out lives here, until its deleter is called.
template <typename Managed>
struct Exported {
  Managed managed{};
  Tensor tensor;
  std::array<std::int64_t, kMaxRank> shape{}, strides{};
};

struct OutgoingType {
  DLDataType type{};
  int unit_bits = 0;
  bool padded = false;
};

OutgoingType outgoing_type(const View& view, DlpackCodes codes, bool can_be_padded) {
  const auto plain = [](DLDataTypeCode code, int bits) {
    return OutgoingType{.type = {code, static_cast<std::uint8_t>(bits), 1}, .unit_bits = bits};
  };
  if (view.dtype == DType::bf16) return plain(kDLBfloat, 16);
  if (is_value(view.dtype)) return plain(kDLFloat, 8 * element_bytes(view.dtype));
  const OutgoingType bytes = plain(kDLUInt, 8 * view.format.code_bytes());
  if (codes == DlpackCodes::bytes) return bytes;
  for (const CodeType& known : kCodeTypes) {
    if (view.format != known.format) continue;
    OutgoingType out = plain(known.code, view.format.bits());
    if (view.format.bits() == 8) return out;
    if (!view.packed) {
      out.unit_bits = 8;
      out.padded = true;
      return can_be_padded ? out : bytes;
    }
    const int rank = view.shape.rank();
    if (known.code == kDLFloat4_e2m1fn && rank > 0 && view.shape[rank - 1] % 2 == 0) {
      out.type.lanes = 2;
      out.unit_bits = 8;
    }
    return out;
  }
  return bytes;
}

template <typename Managed>
OutgoingType fill(Exported<Managed>& out, const Tensor& tensor, DlpackCodes codes,
                  bool can_be_padded) {
  const View& view = tensor.view();
  const OutgoingType outgoing = outgoing_type(view, codes, can_be_padded);
  const bool has_elements = element_count(view.shape) > 0;
  check(!has_elements || view.data != nullptr, ErrorCode::invalid_argument, kTo,
        "got a tensor without memory; make one with Tensor::values or Tensor::codes");
  DLTensor& array = out.managed.dl_tensor;
  out.tensor = tensor;
  array.data = has_elements ? view.data : nullptr;
  array.device = view.device.kind == DeviceKind::cuda ? DLDevice{kDLCUDA, view.device.index}
                                                      : DLDevice{kDLCPU, 0};
  array.ndim = view.shape.rank();
  array.dtype = outgoing.type;
  array.shape = out.shape.data();
  array.strides = out.strides.data();

  std::int64_t dense = 1;
  for (int i = array.ndim - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    const bool packed_here = view.packed && i + 1 == array.ndim;
    const bool bytes_here = packed_here && outgoing.unit_bits == 8;
    out.shape[at] = bytes_here ? packed_row_bytes(view.shape[i], view.format) : view.shape[i];
    out.strides[at] = dense;
    if (has_elements && !packed_here && view.shape[i] > 1) {
      std::int64_t bits = 0;
      check(!__builtin_mul_overflow(view.strides[i], 8, &bits) && bits % outgoing.unit_bits == 0,
            ErrorCode::invalid_argument, kTo, "got a stride of ", view.strides[i],
            " bytes in dimension ", i, ", which is no whole number of elements of ",
            outgoing.unit_bits, " bits; ",
            view.packed ? "export the codes as bytes" : "copy it to a dense tensor first");
      out.strides[at] = bits / outgoing.unit_bits;
    }
    if (__builtin_mul_overflow(dense, out.shape[at], &dense)) dense = 0;  // only without elements
  }
  return outgoing;
}

template <typename Managed>
Managed* release(std::unique_ptr<Exported<Managed>> out) {
  out->managed.manager_ctx = out.get();
  out->managed.deleter = [](Managed* self) {
    delete static_cast<Exported<Managed>*>(self->manager_ctx);
  };
  return &out.release()->managed;
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, DlpackCodes codes) {
  auto out = std::make_unique<Exported<DLManagedTensorVersioned>>();
  const OutgoingType outgoing = fill(*out, tensor, codes, true);
  out->managed.version = {kMajorVersion, kMinorVersion};
  out->managed.flags =
      (tensor.view().read_only ? kFlagReadOnly : 0) | (outgoing.padded ? kFlagSubBytePadded : 0);
  return release(std::move(out));
}

DLManagedTensor* to_dlpack_legacy(const Tensor& tensor, DlpackCodes codes) {
  check(!tensor.view().read_only, ErrorCode::invalid_argument, kTo,
        "got a read-only tensor, which the older DLPack cannot express; ask for the versioned one "
        "or copy it");
  auto out = std::make_unique<Exported<DLManagedTensor>>();
  fill(*out, tensor, codes, false);
  return release(std::move(out));
}

}  // namespace octavo
