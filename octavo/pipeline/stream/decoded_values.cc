// Finds Inf in decoded weights by its bits, and fills expert stacks matrix by matrix.
#include <algorithm>
#include <span>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf/gguf_file.h"
#include "octavo/pipeline/stream/decoded_values_internal.h"
#include "octavo/pipeline/stream/transpose_internal.h"

namespace octavo {
namespace {

// `inf` is Inf's bits without the sign; one less is the largest finite value.
template <typename Word>
void settle(std::span<Word> words, Word inf, Word sign, std::int64_t cols, std::string_view type,
            std::string_view weight, std::int64_t first_row, bool clamp) {
  bool any = false;
  for (const Word word : words) any |= static_cast<Word>(word & ~sign) == inf;
  if (!any) return;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (static_cast<Word>(words[i] & ~sign) != inf) continue;
    const auto at = static_cast<std::int64_t>(i);
    if (!clamp)
      fail(ErrorCode::invalid_argument, "dequantize", "tensor '", shown(weight, 160),
           "' has a value in row ", first_row + at / cols, ", column ", at % cols,
           " that is larger than ", type,
           " can hold; take a wider type (option dtype), or its largest value (option nonfinite)");
    words[i] = static_cast<Word>(static_cast<Word>(words[i] & sign) | static_cast<Word>(inf - 1));
  }
}

}  // namespace

void settle_overflow(const Tensor& values, std::string_view weight, std::int64_t first_row,
                     bool clamp) {
  const Shape& shape = values.shape();
  const std::int64_t cols = shape.rank() > 0 ? shape[shape.rank() - 1] : 1;
  const std::string_view type = dtype_name(values.view().dtype);
  switch (values.view().dtype) {
    case DType::f16:
      return settle<std::uint16_t>(values.span<std::uint16_t>(), 0x7C00, 0x8000, cols, type, weight,
                                   first_row, clamp);
    case DType::bf16:
      return settle<std::uint16_t>(values.span<std::uint16_t>(), 0x7F80, 0x8000, cols, type, weight,
                                   first_row, clamp);
    case DType::f32:
      return settle<std::uint32_t>(values.span<std::uint32_t>(), 0x7F800000, 0x80000000, cols, type,
                                   weight, first_row, clamp);
    default:
      return;
  }
}

void write_decoded(const Tensor& values, const SourcePart& part, std::int64_t first_row,
                   const safetensors::TensorEntry& tensor, safetensors::FileWriter& writer) {
  const std::int64_t rows = values.shape()[0], cols = values.shape()[1],
                     size = element_bytes(values.view().dtype);
  const auto put = [&](std::int64_t element, std::span<const std::byte> bytes) {
    writer.write(tensor, static_cast<std::uint64_t>(element * size), bytes);
  };
  if (part.matrix < 0) return put(first_row * cols, values.bytes());
  const auto high = static_cast<std::int64_t>(tensor.shape[1]),
             wide = static_cast<std::int64_t>(tensor.shape[2]);
  if (!part.transposed)
    return put((part.matrix * high + part.first + first_row) * wide, values.bytes());
  std::vector<std::byte> transposed(values.bytes().size());
  transpose(values.bytes(), rows, cols, values.view().dtype, transposed);
  const auto piece = static_cast<std::size_t>(rows * size);
  for (std::int64_t in = 0; in < cols; ++in)
    put((part.matrix * high + in) * wide + part.first + first_row,
        std::span(transposed).subspan(static_cast<std::size_t>(in) * piece, piece));
}

void write_rows(const DialectTensor& output, std::uint64_t offset, std::span<const std::byte> bytes,
                safetensors::FileWriter& writer) {
  const safetensors::TensorEntry& tensor = writer.at(output.plan.name);
  if (output.rope_heads == 0) return writer.write(tensor, offset, bytes);
  const auto rows = static_cast<std::int64_t>(tensor.shape.front());
  const auto row_bytes = tensor.nbytes() / static_cast<std::uint64_t>(rows);
  while (!bytes.empty()) {
    const auto row = static_cast<std::int64_t>(offset / row_bytes);
    const std::uint64_t within = offset % row_bytes;
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(row_bytes - within, bytes.size()));
    const auto place = static_cast<std::uint64_t>(gguf::rope_row(row, rows, output.rope_heads));
    writer.write(tensor, place * row_bytes + within, bytes.first(count));
    offset += count;
    bytes = bytes.subspan(count);
  }
}

}  // namespace octavo
