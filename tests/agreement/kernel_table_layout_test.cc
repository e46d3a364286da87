// The kernel interface accepts more layouts than the operations above it use today: values, codes
// and scales with gaps between rows, by column, or backwards. Every backend must give the elements
// that the reference gives for dense matrices, and touch nothing in between.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "octavo/scale/tile_scale.h"
#include "tests/agreement/quantize_cases.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

constexpr std::byte kUntouched{0x5A};

enum class Layout { dense, gaps, by_column, backwards };
constexpr Layout kLayouts[] = {Layout::dense, Layout::gaps, Layout::by_column, Layout::backwards};

// A matrix that owns its memory. Packed codes are row-major only.
class Placed {
 public:
  Placed() = default;
  Placed(DType dtype, const Format& format, bool packed, std::int64_t rows, std::int64_t cols,
         Layout layout) {
    const std::int64_t size = element_bytes(dtype, format),
                       row_bytes = packed ? packed_row_bytes(cols, format) : cols * size;
    if (packed && layout == Layout::by_column) layout = Layout::gaps;
    const std::int64_t gap = layout == Layout::dense ? 0 : 3 * size;
    matrix_ = {.dtype = dtype,
               .format = format,
               .packed = packed,
               .rows = rows,
               .cols = cols,
               .row_pitch = row_bytes + gap,
               .col_stride = size};
    if (layout == Layout::by_column) {
      matrix_.row_pitch = size;
      matrix_.col_stride = rows * size + gap;
    }
    const std::int64_t longest =
        rows * row_bytes + (layout == Layout::by_column ? cols : rows) * gap;
    memory_.assign(static_cast<std::size_t>(longest), kUntouched);
    matrix_.data = memory_.data();
    if (layout == Layout::backwards) {
      matrix_.data = memory_.data() + (rows - 1) * matrix_.row_pitch;
      matrix_.row_pitch = -matrix_.row_pitch;
    }
  }

  [[nodiscard]] const Matrix& matrix() const { return matrix_; }

  // The elements in the order of a dense matrix, and back. Each is marked as touched.
  template <typename Visit>
  void each(Visit visit) {
    const std::int64_t size = matrix_.packed ? packed_row_bytes(matrix_.cols, matrix_.format)
                                             : element_bytes(matrix_.dtype, matrix_.format);
    std::size_t at = 0;
    for (std::int64_t row = 0; row < matrix_.rows; ++row) {
      for (std::int64_t col = 0; col < (matrix_.packed ? 1 : matrix_.cols); ++col) {
        visit(static_cast<std::byte*>(matrix_.data) + row * matrix_.row_pitch +
                  col * matrix_.col_stride,
              at, static_cast<std::size_t>(size));
        at += static_cast<std::size_t>(size);
      }
    }
  }
  void fill(std::span<const std::byte> dense) {
    each([&](std::byte* to, std::size_t at, std::size_t size) {
      std::memcpy(to, &dense[at], size);
    });
  }
  std::vector<std::byte> dense() {
    std::vector<std::byte> all;
    each([&](const std::byte* from, std::size_t, std::size_t size) {
      all.insert(all.end(), from, from + size);
    });
    return all;
  }
  // What lies between the elements; call it last.
  bool gaps_are_untouched() {
    each([&](std::byte* to, std::size_t, std::size_t size) {
      std::memset(to, static_cast<int>(kUntouched), size);
    });
    return std::ranges::all_of(memory_, [](std::byte b) { return b == kUntouched; });
  }

 private:
  std::vector<std::byte> memory_;
  Matrix matrix_{};
};

struct Copy {
  Placed codes, scales;
  float tensor_scale = 0;

  Copy(const Scaling& scaling, std::int64_t rows, std::int64_t cols, Layout layout) {
    const bool packed = scaling.packed && scaling.format.bits() < 8;
    const std::int64_t grid_rows = tile_count(scaling.tile.rows, rows),
                       grid_cols = tile_count(scaling.tile.cols, cols);
    codes = Placed(DType::code, scaling.format, packed, rows, cols, layout);
    const bool e8m0 = scaling.scale.format == ScaleFormat::e8m0,
               two_levels = scaling.scale.format == ScaleFormat::e4m3_f32;
    scales = Placed(e8m0 || two_levels ? DType::code : DType::f32,
                    e8m0         ? e8m0fnu
                    : two_levels ? e4m3fn
                                 : Format{},
                    false, grid_rows, grid_cols, layout);
  }
  QuantizedMatrix matrix(const Scaling& scaling, float amax) {
    const bool two_levels = scaling.scale.format == ScaleFormat::e4m3_f32;
    if (two_levels) tensor_scale = tensor_scale_of(scaling.scale, scaling.format, amax);
    return {.codes = codes.matrix(),
            .scales = scales.matrix(),
            .tile = scaling.tile,
            .tensor_scale = two_levels ? &tensor_scale : nullptr};
  }
};

struct Outcome {
  std::vector<std::byte> row_codes, row_scales, column_codes, column_scales, back;
  float amax = 0;
  bool clean = true;
  bool operator==(const Outcome&) const = default;
};

constexpr std::int64_t kRows = 37, kCols = 150;

Outcome outcome_of(const Kernels& kernels, const Scaling& scaling, const Tensor& values,
                   Layout layout, bool delayed) {
  Placed source(values.dtype(), {}, false, kRows, kCols, layout),
      back(DType::f32, {}, false, kRows, kCols, layout);
  source.fill(values.bytes());
  float amax = 1000.0F, found = 0;
  const float inv_scale = 0.75F;
  Copy rowwise(scaling, kRows, kCols, layout), columnwise(scaling, kCols, kRows, layout);
  QuantizeJob job{.scale = scaling.scale, .encode = scaling.encode};
  job.source.values = source.matrix();
  job.rowwise = rowwise.matrix(scaling, amax);
  job.columnwise = columnwise.matrix(scaling, amax);
  job.scale.context.per_tensor = scaling.tile == Tile{0, 0};
  job.tensor_amax = &amax;
  job.amax = &found;
  if (delayed) job.given_inv_scale = &inv_scale;
  kernels.quantize({}, job);
  Outcome outcome{rowwise.codes.dense(),
                  rowwise.scales.dense(),
                  columnwise.codes.dense(),
                  columnwise.scales.dense(),
                  {},
                  found};
  kernels.dequantize({}, job.rowwise, back.matrix());
  outcome.back = back.dense();
  for (Placed* placed :
       {&source, &back, &rowwise.codes, &rowwise.scales, &columnwise.codes, &columnwise.scales})
    outcome.clean &= placed->gaps_are_untouched();
  return outcome;
}

TEST(KernelTableLayout, OfValuesCodesAndScalesDoesNotMatter) {
  const std::vector<float> raw = all_kinds_of_values(kRows * kCols, 21, /*finite=*/true);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Tensor values = values_as(raw, {kRows, kCols}, dtype);
    for (const std::string& name : preset_names()) {
      const Scaling scaling = preset(name);
      for (const bool delayed : {false, true}) {
        if (delayed && scaling.tile != Tile{0, 0}) continue;
        const Outcome wanted =
            outcome_of(reference_backend(), scaling, values, Layout::dense, delayed);
        for (const BackendInfo& backend : support::every_backend()) {
          if (backend.kernels->quantize == nullptr || backend.kernels->dequantize == nullptr)
            continue;
          for (const Layout layout : kLayouts) {
            const Outcome got = outcome_of(*backend.kernels, scaling, values, layout, delayed);
            const std::string where = text(name, ", ", dtype_name(dtype), ", layout ",
                                           static_cast<int>(layout), ", ", backend.name);
            EXPECT_EQ(got.row_scales, wanted.row_scales) << where;
            EXPECT_TRUE(got.row_codes == wanted.row_codes) << where;
            EXPECT_EQ(got.column_scales, wanted.column_scales) << where;
            EXPECT_TRUE(got.column_codes == wanted.column_codes) << where;
            EXPECT_TRUE(got.back == wanted.back) << where;
            EXPECT_EQ(got.amax, wanted.amax) << where;
            EXPECT_TRUE(got.clean) << where << ": something between the elements was written";
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
