// The gguf dialect: MXFP4 and Q8_0 blocks of a GGUF file, as llama.cpp loads them. Names are
// llama.cpp's; config and tokenizer become the file's metadata, so there is no config.json. GGUF
// files are read by CheckpointReader, which shows their tensors decoded.
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/gguf/gguf_names.h"
#include "octavo/checkpoint/gguf/gguf_type.h"
#include "octavo/quant/scale_order.h"
#include "octavo/round/encode.h"

namespace octavo {
namespace {

constexpr std::string_view kName = "gguf", kMxfp4 = "MXFP4", kQ8 = "Q8_0";
constexpr std::int64_t kElements = 32, kHalf = kElements / 2;

// The block type of a scaling; "" where there is none.
std::string_view block_type_of(const Scaling& scaling) {
  if (scheme_of(scaling) == Scheme::mxfp4) return kMxfp4;
  const ScaleFormat scale = scaling.scale.format;
  const bool integers = scaling.format == mxint8 && scaling.tile == Tile{1, kElements};
  return integers && (scale == ScaleFormat::f16 || scale == ScaleFormat::e8m0) ? kQ8
                                                                               : std::string_view();
}

std::string why_not(const QuantizedWeight& weight) {
  if (std::string why = why_no_matrix(weight); !why.empty()) return why;
  if (gguf::gguf_name(weight.name).empty()) return "llama.cpp has no name for it that octavo knows";
  if (block_type_of(weight.scaling).empty())
    return unsupported_scaling(kName, weight.scaling, "mxfp4 (MXFP4) and mxint8 (Q8_0)");
  const Extent extent = extent_of(weight);
  if (extent.cols % kElements != 0)
    return not_divisible("llama.cpp", "columns", extent.cols, kElements);
  return "";
}

std::vector<DialectTensor> dialect_tensors(const QuantizedWeight& weight) {
  const std::string_view type = block_type_of(weight.scaling);
  const Extent extent = extent_of(weight);
  const std::int64_t bytes = extent.cols / kElements * gguf::type_named(type).bytes;
  return {{.plan = plan_tensor(gguf::gguf_name(weight.name), safetensors::StoredType::u8,
                               {extent.rows, bytes}),
           .part = Part::blocks,
           .block_type = type}};
}

void configure(const QuantizedModel&, Json&, Json&) {}

std::vector<FoundWeight> find(const CheckpointReader&, Misfits*) { return {}; }

unsigned byte_of(std::byte byte) { return std::to_integer<unsigned>(byte); }

// Sixteen bytes of neighbours in pairs become sixteen of elements i and i + 16.
void pack_mxfp4(const std::byte* codes, std::byte scale, std::byte* block) {
  const auto code = [&](std::int64_t i) { return byte_of(codes[i / 2]) >> (i % 2 * 4) & 0xFU; };
  block[0] = scale;
  for (std::int64_t i = 0; i < kHalf; ++i)
    block[1 + i] = static_cast<std::byte>(code(i) | code(i + kHalf) << 4);
}

// mxint8 counts in 64ths, Q8_0 in ones: its scale is 1/64 of octavo's. That is exact unless it is
// subnormal in f16 (below 2^-14), where it is rounded once more.
void pack_q8_0(const std::byte* codes, double scale, std::byte* block) {
  const auto bits = static_cast<std::uint16_t>(encode_value(f16_format, scale / 64).code);
  std::memcpy(block, &bits, sizeof bits);
  std::memcpy(block + sizeof bits, codes, static_cast<std::size_t>(kElements));
}

}  // namespace

std::vector<std::byte> pack_blocks(const QuantizedTensor& row_block, std::string_view block_type) {
  const Tensor scales = in_order(row_block.rowwise.scales, ScaleOrder::row_major);
  const std::span<const std::byte> codes = row_block.rowwise.codes.bytes(), stored = scales.bytes();
  const bool nibbles = block_type == kMxfp4;
  const bool halves = row_block.scaling.scale.format == ScaleFormat::f16;
  const std::size_t size = gguf::type_named(block_type).bytes;
  const auto step = static_cast<std::size_t>(nibbles ? kHalf : kElements);
  std::vector<std::byte> out(codes.size() / step * size);
  for (std::size_t i = 0; i < out.size() / size; ++i) {
    const std::byte* const from = codes.data() + i * step;
    std::byte* const block = out.data() + i * size;
    if (nibbles) {
      pack_mxfp4(from, stored[i], block);
    } else {
      const double scale =
          halves ? decode(f16_format, byte_of(stored[2 * i]) | byte_of(stored[2 * i + 1]) << 8)
                 : decode(e8m0fnu, byte_of(stored[i]));
      pack_q8_0(from, scale, block);
    }
  }
  return out;
}

const DialectTable& gguf_dialect() {
  static constexpr DialectTable kTable{kName, why_not, dialect_tensors, configure, find, false, {}};
  return kTable;
}

}  // namespace octavo
