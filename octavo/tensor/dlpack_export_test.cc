#include <array>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"
#include "octavo/tensor/dlpack.h"

namespace octavo {
namespace {

using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;

// What the receiver of an array must do in the end.
struct Receiver {
  template <typename Managed>
  void operator()(Managed* out) const {
    out->deleter(out);
  }
};
std::unique_ptr<DLManagedTensorVersioned, Receiver> sent(const Tensor& tensor,
                                                         DlpackCodes codes = DlpackCodes::typed) {
  return {to_dlpack(tensor, codes), {}};
}
std::unique_ptr<DLManagedTensor, Receiver> sent_legacy(const Tensor& tensor) {
  return {to_dlpack_legacy(tensor), {}};
}

template <typename Sent>
std::vector<std::int64_t> shape_of(const Sent& out) {
  return {out->dl_tensor.shape, out->dl_tensor.shape + out->dl_tensor.ndim};
}
template <typename Sent>
std::vector<std::int64_t> strides_of(const Sent& out) {
  return {out->dl_tensor.strides, out->dl_tensor.strides + out->dl_tensor.ndim};
}
template <typename Sent>
std::array<int, 3> type_of(const Sent& out) {
  return {out->dl_tensor.dtype.code, out->dl_tensor.dtype.bits, out->dl_tensor.dtype.lanes};
}
using Sizes = std::vector<std::int64_t>;
using Type = std::array<int, 3>;

TEST(DlpackExport, KeepsTheMemoryAlive) {
  Tensor tensor = Tensor::values({2, 3}, DType::f32);
  const std::weak_ptr<void> memory = tensor.owner();
  tensor.span<float>()[5] = 42;
  auto out = sent(tensor);
  auto legacy = sent_legacy(tensor);
  tensor = {};
  EXPECT_EQ(out->version.major, 1u);
  EXPECT_EQ(out->flags, 0u);
  EXPECT_EQ(out->dl_tensor.byte_offset, 0u);
  EXPECT_EQ(out->dl_tensor.device.device_type, dlpack::kDLCPU);
  EXPECT_EQ(static_cast<float*>(out->dl_tensor.data)[5], 42);
  EXPECT_EQ(shape_of(out), (Sizes{2, 3}));
  EXPECT_EQ(strides_of(legacy), (Sizes{3, 1}));
  out.reset();
  EXPECT_FALSE(memory.expired());
  legacy.reset();
  EXPECT_TRUE(memory.expired());
}

TEST(DlpackExport, TypesGoRound) {
  std::vector<Tensor> tensors;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    tensors.push_back(Tensor::values({2, 4}, dtype));
  for (const NamedFormat& named : kNamedFormats)
    tensors.push_back(Tensor::codes({2, 4}, named.format));
  for (const char* name : {"e5m10", "e2m2", "e3m3fnuz"})
    tensors.push_back(Tensor::codes({2, 4}, parse_format(name)));
  for (const Tensor& tensor : tensors) {
    const bool typed_has_no_word =
        tensor.dtype() == DType::code && type_of(sent(tensor))[0] == dlpack::kDLUInt;
    for (const DlpackCodes codes : {DlpackCodes::typed, DlpackCodes::bytes}) {
      const bool is_bytes =
          tensor.dtype() == DType::code && (typed_has_no_word || codes == DlpackCodes::bytes);
      const DlpackImport import{.format = is_bytes ? std::optional(tensor.format()) : std::nullopt};
      const Tensor back = from_dlpack(to_dlpack(tensor, codes), import);
      EXPECT_EQ(back.dtype(), tensor.dtype());
      EXPECT_EQ(back.format(), tensor.format());
      EXPECT_EQ(back.view().packed, false);
      EXPECT_EQ(back.view().strides, tensor.view().strides);
      EXPECT_EQ(back.view().data, tensor.view().data);
    }
  }
}

TEST(DlpackExport, CodesHaveTheirTypeOrGoAsIntegers) {
  EXPECT_EQ(type_of(sent(Tensor::codes({2}, e4m3fn))), (Type{10, 8, 1}));
  EXPECT_EQ(type_of(sent(Tensor::codes({2}, e4m3fn), DlpackCodes::bytes)), (Type{1, 8, 1}));
  EXPECT_EQ(type_of(sent(Tensor::codes({2}, mxint8))), (Type{1, 8, 1}));
  EXPECT_EQ(type_of(sent(Tensor::codes({2}, parse_format("e5m10")))), (Type{1, 16, 1}));
  EXPECT_EQ(type_of(sent(Tensor::values({2}, DType::bf16))), (Type{4, 16, 1}));
}

TEST(DlpackExport, CodesBelowAByte) {
  const Tensor loose = Tensor::codes({2, 3}, e2m1fn);
  EXPECT_EQ(type_of(sent(loose)), (Type{17, 4, 1}));
  EXPECT_EQ(sent(loose)->flags, dlpack::kFlagSubBytePadded);
  EXPECT_EQ(type_of(sent_legacy(loose)), (Type{1, 8, 1}));

  const Tensor pairs = Tensor::codes({2, 6}, e2m1fn, true);
  EXPECT_EQ(type_of(sent(pairs)), (Type{17, 4, 2}));
  EXPECT_EQ(shape_of(sent(pairs)), (Sizes{2, 3}));
  EXPECT_EQ(strides_of(sent_legacy(pairs)), (Sizes{3, 1}));
  EXPECT_EQ(sent(pairs)->flags, 0u);
  EXPECT_EQ(from_dlpack(to_dlpack(pairs)).view().strides, pairs.view().strides);

  const Tensor odd = Tensor::codes({2, 3}, e2m1fn, true);
  EXPECT_EQ(type_of(sent(odd)), (Type{17, 4, 1}));
  EXPECT_EQ(strides_of(sent(odd)), (Sizes{4, 1}));
  EXPECT_EQ(from_dlpack(to_dlpack(odd)).view().strides, odd.view().strides);

  const Tensor six = Tensor::codes({2, 4}, e3m2fn, true);
  EXPECT_EQ(strides_of(sent(six)), (Sizes{4, 1}));
  // Five codes of six bits take four bytes, which is no number of codes; as bytes they go out.
  const Tensor ragged = Tensor::codes({2, 5}, e3m2fn, true);
  EXPECT_THROW((void)to_dlpack(ragged), Error);
  EXPECT_EQ(shape_of(sent(ragged, DlpackCodes::bytes)), (Sizes{2, 4}));
  const Tensor back =
      from_dlpack(to_dlpack(ragged, DlpackCodes::bytes), {.format = e3m2fn, .packed_cols = 5});
  EXPECT_EQ(back.view().strides, ragged.view().strides);
  EXPECT_EQ(back.shape(), ragged.shape());
}

TEST(DlpackExport, StridedReadOnlyAndDeviceViews) {
  const Tensor whole = Tensor::values({4, 6}, DType::f32);
  View view = whole.view();
  view.shape = {2, 3};
  view.strides = {-48, 8};
  view.read_only = true;
  view.device = {DeviceKind::cuda, 2};
  const Tensor part = Tensor::adopt(view, whole.owner());
  const auto out = sent(part);
  EXPECT_EQ(strides_of(out), (Sizes{-12, 2}));
  EXPECT_EQ(out->flags, dlpack::kFlagReadOnly);
  EXPECT_EQ(out->dl_tensor.device.device_type, dlpack::kDLCUDA);
  EXPECT_EQ(out->dl_tensor.device.device_id, 2);
  EXPECT_THROW((void)to_dlpack_legacy(part), Error);
  view.strides = {-48, 6};  // one and a half elements
  EXPECT_THROW((void)to_dlpack(Tensor::adopt(view, whole.owner())), Error);
}

TEST(DlpackExport, Edges) {
  const auto empty = sent(Tensor::values({3, 0, 2}, DType::f32));
  EXPECT_EQ(empty->dl_tensor.data, nullptr);
  EXPECT_EQ(shape_of(empty), (Sizes{3, 0, 2}));
  const auto scalar = sent(Tensor::values({}, DType::f64));
  EXPECT_EQ(scalar->dl_tensor.ndim, 0);
  EXPECT_THROW((void)to_dlpack(Tensor{}), Error);
}

}  // namespace
}  // namespace octavo
