// The MXFP4 of gpt-oss. Codes and scales lie as octavo's own do (blocks of 32 along the input, the
// first code in the low nibble, E8M0 scales), but as [experts, out, in]; the bf16 model that
// transformers makes of it has [experts, in, out].
#include <algorithm>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/decoded_weight_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr std::uint64_t kBlockBytes = 16, kBlockValues = 32;

// [rows, cols] to [cols, rows], in squares that stay in the L1 cache.
template <typename Bits>
void transpose(const Bits* from, std::int64_t rows, std::int64_t cols, Bits* to) {
  constexpr std::int64_t kSquare = 32;
  for (std::int64_t row = 0; row < rows; row += kSquare)
    for (std::int64_t col = 0; col < cols; col += kSquare)
      for (std::int64_t j = col; j < std::min(cols, col + kSquare); ++j)
        for (std::int64_t i = row; i < std::min(rows, row + kSquare); ++i)
          to[j * rows + i] = from[i * cols + j];
}

class OfGptOss : public DecodedWeight {
 public:
  // `found` is [experts, out, in].
  explicit OfGptOss(FoundWeight found)
      : DecodedWeight(found.weight.name,
                      Shape{found.weight.shape[0], found.weight.shape[2], found.weight.shape[1]},
                      found.weight.source, found.weight.shape[2]),
        found_(std::move(found)) {}

  [[nodiscard]] std::vector<std::string> tensors() const override {
    return {found_.tensors[0].plan.name, found_.tensors[1].plan.name};
  }

 private:
  // One expert.
  [[nodiscard]] Tensor decode_rows(const CheckpointReader& checkpoint, std::int64_t first,
                                   std::int64_t) const override {
    const std::int64_t in = shape()[1], out = shape()[2];
    const Tensor decoded =
        dequantize(read_row_block(checkpoint, Dialect::octavo, found_, first / in * out, out),
                   source(), {.threads = 1});
    Tensor transposed = Tensor::values({in, out}, source());
    if (element_bytes(source()) == 2)
      transpose(decoded.span<std::uint16_t>().data(), out, in,
                transposed.span<std::uint16_t>().data());
    else
      transpose(decoded.span<std::uint32_t>().data(), out, in,
                transposed.span<std::uint32_t>().data());
    return transposed;
  }

  FoundWeight found_;
};

}  // namespace

std::vector<FoundWeight> gpt_oss_stacks(const CheckpointReader& checkpoint) {
  std::vector<FoundWeight> out;
  if (quantization_config(checkpoint.config())["quant_method"].string_or("") != "mxfp4") return out;
  const DType source = source_type(checkpoint);
  for (const StoredTensor& blocks : checkpoint.tensors()) {
    if (!blocks.name().ends_with(kBlocks)) continue;
    const std::string name = blocks.name().substr(0, blocks.name().size() - kBlocks.size());
    const StoredTensor* const scales = checkpoint.find(name + std::string(kScales));
    const auto& sizes = blocks.entry->shape;
    const auto is_bytes = [](const StoredTensor& tensor) {
      return tensor.entry->type == safetensors::StoredType::u8;
    };
    check(scales != nullptr && is_bytes(blocks) && is_bytes(*scales) && sizes.size() == 4 &&
              sizes[3] == kBlockBytes &&
              scales->entry->shape == std::vector<std::uint64_t>(sizes.begin(), sizes.end() - 1) &&
              blocks.nbytes() > 0 &&
              (source == DType::bf16 || source == DType::f16 || source == DType::f32),
          ErrorCode::invalid_argument, kDialectOp, "'", shown(blocks.name(), 200), "' is ",
          stored_name(blocks.entry->type), " ", shape_text(sizes),
          "; expected bytes [experts, out, in / 32, 16] of gpt-oss, and ", kScales,
          " of bytes [experts, out, in / 32]");
    const auto size = [&](std::size_t i) { return static_cast<std::int64_t>(sizes[i]); };
    QuantizedWeight weight{
        .name = name,
        .module = name,
        .shape = {size(0), size(1), size(2) * static_cast<std::int64_t>(kBlockValues)},
        .source = source,
        .scaling = preset("mxfp4")};
    const auto part = [](const StoredTensor& tensor, Part what) {
      return DialectTensor{
          .plan = {tensor.name(), safetensors::StoredType::u8, tensor.entry->shape}, .part = what};
    };
    out.push_back({std::move(weight), {part(blocks, Part::codes), part(*scales, Part::scales)}});
  }
  return out;
}

DecodedWeights gpt_oss_weights(const CheckpointReader& checkpoint) {
  DecodedWeights out;
  for (FoundWeight& stack : gpt_oss_stacks(checkpoint))
    out.push_back(std::make_unique<OfGptOss>(std::move(stack)));
  return out;
}

}  // namespace octavo
