// Large matrices have their MX scales written in whole sectors and sorted afterwards; row blocks of
// them are too small for that, and are known to agree with the reference. Both must give the same
// bytes.
#include <algorithm>

#include "tests/cuda/device_quantizer.h"

namespace octavo::support {
namespace {

constexpr std::int64_t kBlock = 32;
constexpr std::int64_t kRowBlock = 1024;                 // rows
constexpr std::int64_t kSorted = std::int64_t{1} << 26;  // values, from here on
constexpr std::int64_t kPeriod = 1'048'573;              // a prime below 2^20

class MxScaleSectors : public CudaTest {
 protected:
  struct Copy {
    DeviceMemory codes, scales;
    std::int64_t lines, length, code_pitch, scale_pitch;

    Copy(std::int64_t line_count, std::int64_t values, std::int64_t scale_padding)
        : codes(static_cast<std::size_t>(line_count * values)),
          scales(static_cast<std::size_t>(line_count * padded(values, scale_padding))),
          lines(line_count),
          length(values),
          code_pitch(values),
          scale_pitch(padded(values, scale_padding)) {}
    static std::int64_t padded(std::int64_t values, std::int64_t padding) {
      return ((values + kBlock - 1) / kBlock + padding - 1) / padding * padding;
    }
    // `line_count` lines from `line` on, `values` values of each from `at` on.
    [[nodiscard]] QuantizedMatrix part(std::int64_t line, std::int64_t line_count, std::int64_t at,
                                       std::int64_t values) const {
      QuantizedMatrix part{.tile = {1, kBlock}};
      part.codes = dense_matrix(codes.data() + line * code_pitch + at,
                                code_view(nullptr, e4m3fn, {0}), line_count, values);
      part.codes.row_pitch = code_pitch;
      part.scales = dense_matrix(scales.data() + line * scale_pitch + at / kBlock,
                                 code_view(nullptr, e8m0fnu, {0}), line_count,
                                 (values + kBlock - 1) / kBlock);
      part.scales.row_pitch = scale_pitch;
      return part;
    }
    [[nodiscard]] bool equals(const Copy& other) const {
      return codes.read(0, codes.size()) == other.codes.read(0, other.codes.size()) &&
             scales.read(0, scales.size()) == other.scales.read(0, other.scales.size());
    }
  };

  // All kinds of bits: NaN and Inf are one in 128 of them, and poison a block in five.
  static void fill(const DeviceMemory& memory) {
    std::vector<std::uint16_t> bits(kPeriod);
    std::uint32_t state = 7;
    for (std::uint16_t& value : bits) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<std::uint16_t>(state >> 16);
    }
    const auto bytes = std::as_bytes(std::span(bits));
    for (std::size_t at = 0; at < memory.size(); at += bytes.size())
      memory.write(bytes.first(std::min(bytes.size(), memory.size() - at)), at);
  }

  void compare(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t scale_padding) {
    ASSERT_GE(rows * cols, kSorted);
    ASSERT_LT(kRowBlock * cols, kSorted);
    const Scaling scaling = preset("mxfp8");
    const DeviceMemory values(static_cast<std::size_t>(rows * cols * 2));
    fill(values);
    const Copy row(rows, cols, scale_padding), column(cols, rows, scale_padding);
    const Copy row_block_row(rows, cols, scale_padding),
        row_block_column(cols, rows, scale_padding);
    const Stream stream;
    const auto quantize = [&](const Copy& by_row, const Copy& by_column, std::int64_t first,
                              std::int64_t count) {
      QuantizeJob job{.scale = scaling.scale, .encode = scaling.encode};
      job.scale.context.input = dtype == DType::bf16 ? InputType::bf16 : InputType::f16;
      job.source.values = dense_matrix(values.data() + first * cols * 2,
                                       value_view(nullptr, dtype, {0}), count, cols);
      job.rowwise = by_row.part(first, count, 0, cols);
      job.columnwise = by_column.part(0, cols, first, count);
      api().kernels->quantize(stream.exec(), job);
    };
    quantize(row, column, 0, rows);
    for (std::int64_t first = 0; first < rows; first += kRowBlock)
      quantize(row_block_row, row_block_column, first, std::min(kRowBlock, rows - first));
    stream.wait();
    EXPECT_TRUE(row.equals(row_block_row));
    EXPECT_TRUE(column.equals(row_block_column));
  }
};

TEST_F(MxScaleSectors, WholeTilesAreAsInRowBlocks) { compare(DType::bf16, 8192, 8192, 1); }
// Both directions end with tiles that share no sector, the last of them ragged.
TEST_F(MxScaleSectors, EdgesAreAsInRowBlocks) { compare(DType::bf16, 8336, 8392, 32); }
TEST_F(MxScaleSectors, HalvesAreAsInRowBlocks) { compare(DType::f16, 9216, 8200, 32); }
// Scales whose rows do not begin at sectors are written directly.
TEST_F(MxScaleSectors, UnalignedScalesAreAsInRowBlocks) { compare(DType::bf16, 8336, 8392, 1); }

}  // namespace
}  // namespace octavo::support
