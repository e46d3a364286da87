// Plans and launches a GEMM of FP8 codes, or of 16-bit elements with scales: operands and scales as
// kernels read them, tensor maps, stream-K schedule. gemm_tile_shape.h chooses the tile shape.
#include <algorithm>
#include <atomic>
#include <optional>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/random_bits.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr std::int64_t kBlock = 128;  // of K, after which sums are promoted to FP32 accumulators

// Elements of K per pipeline stage: 128 bytes.
std::int64_t stage_elements(const GemmOperand& operand) {
  const Matrix& codes = operand.quantized.codes;
  return 128 / element_bytes(codes.dtype, codes.format);
}

bool scales_fit(const GemmOperand& operand) {
  const QuantizedMatrix& quantized = operand.quantized;
  const std::int64_t along = tile_extent(quantized.tile.cols, operand.cols());
  const Matrix& scales = quantized.scales;
  return quantized.tensor_scale == nullptr && (along >= operand.cols() || along % kBlock == 0) &&
         (scales.dtype == DType::code ? scales.format == e8m0fnu : scales.dtype != DType::f64);
}

bool operand_fits(const GemmOperand& operand) {
  return operand.is_quantized() && is_fp8_format(operand.quantized.codes.format) &&
         (operand.cols() <= 1 || operand.quantized.codes.col_stride == 1) && scales_fit(operand);
}

// A ticket for stream-K flags: a number that memory does not hold by chance and that no two
// concurrent launches share.
unsigned long long new_ticket() {
  static const unsigned long long kSeed = random_bits();
  static std::atomic<unsigned long long> count{0};
  return (kSeed + count.fetch_add(1, std::memory_order_relaxed) * 0x9E3779B97F4A7C15ull) | 1;
}

// An operand that TMA can read: the caller's, or a copy with aligned rows.
class Readable {
 public:
  Readable(const Exec& exec, const Matrix& codes)
      : codes_(codes),
        as_it_is_(fits_tensor_map(codes) && has_plain_rows(codes)),
        pitch_((codes.cols * element_bytes(codes.dtype, codes.format) + 15) / 16 * 16),
        copy_(without_workspace(exec),
              as_it_is_ ? 0 : static_cast<std::size_t>(pitch_ * codes.rows)) {
    if (as_it_is_) return;
    codes_.data = copy_.as<void>();
    codes_.row_pitch = pitch_;
    codes_.col_stride = element_bytes(codes.dtype, codes.format);
    copy_rows(exec, codes, codes_);
  }
  [[nodiscard]] const Matrix& codes() const { return codes_; }

 private:
  Matrix codes_;
  bool as_it_is_;
  std::int64_t pitch_;
  Scratch copy_;
};

// Scales as a ScalePlane: the caller's memory if it has that layout, else a copy.
class Plane {
 public:
  Plane(const Exec& exec, const GemmOperand& operand, bool one_per_tile) {
    const QuantizedMatrix& quantized = operand.quantized;
    const Matrix& scales = quantized.scales;
    const std::int64_t rows = operand.rows(), each = tile_extent(quantized.tile.rows, rows),
                       along = tile_extent(quantized.tile.cols, operand.cols()),
                       block = stage_elements(operand);
    constexpr std::int64_t kFloat = sizeof(float);
    const bool direct = scales.dtype == DType::f32 && (along == block || along >= operand.cols());
    plane_.each = static_cast<std::int32_t>(one_per_tile ? std::max<std::int64_t>(each, 2) : 1);
    plane_.rows = static_cast<std::int32_t>(rows);
    plane_.row_pitch = scales.row_pitch / kFloat;
    plane_.pitch = along >= operand.cols() ? 0 : scales.col_stride / kFloat;
    plane_.data = static_cast<const float*>(scales.data);
    if (direct && one_per_tile) return;
    if (direct && each == 1 && scales.row_pitch == kFloat && is_aligned(scales.data, 16) &&
        rows % 4 == 0 && plane_.pitch % 4 == 0)
      return;
    const std::int64_t blocks = along >= operand.cols() ? 1 : tile_count(block, operand.cols());
    copy_.emplace(without_workspace(exec),
                  static_cast<std::size_t>(plane_floats(rows, blocks)) * sizeof(float));
    fill_plane(exec, quantized, block, copy_->as<float>());
    plane_.rows = static_cast<std::int32_t>(plane_floats(rows, 1));
    plane_.data = copy_->as<float>();
    plane_.row_pitch = plane_.each;
    plane_.pitch = blocks > 1 ? plane_.rows : 0;
  }
  [[nodiscard]] const ScalePlane& plane() const { return plane_; }

 private:
  ScalePlane plane_{};
  std::optional<Scratch> copy_{};
};

void launch(const Exec& exec, const GemmPlan& plan, const GemmTiling& tiling, const Matrix& rows,
            const Matrix& cols) {
  if (rows.dtype != DType::code)
    return (rows.dtype == DType::bf16 ? launch_bf16 : launch_f16)(exec, plan, tiling.shape,
                                                                  tiling.scales);
  const auto entry = rows.format == e4m3fn
                         ? (cols.format == e4m3fn ? launch_e4m3_e4m3 : launch_e4m3_e5m2)
                         : (cols.format == e4m3fn ? launch_e5m2_e4m3 : launch_e5m2_e5m2);
  entry(exec, plan, tiling.shape, tiling.scales);
}

}  // namespace

SumSlots::SumSlots(const Exec& exec, std::int64_t slots, int cols)
    : bytes_(static_cast<std::size_t>(slots) * 64 * static_cast<std::size_t>(cols) * sizeof(float)),
      memory_(exec, bytes_ + static_cast<std::size_t>(slots) * sizeof(unsigned long long)) {}

void SumSlots::give_to(GemmPlan& plan) const {
  plan.partial = memory_.as<float>();
  plan.ready = reinterpret_cast<unsigned long long*>(memory_.as<unsigned char>() + bytes_);
  plan.ticket = new_ticket();
}

bool sizes_fit(const GemmJob& job) {
#ifdef OCTAVO_CUDA_ONE_CONFIG
  constexpr bool kBuilt = false;  // only one configuration of each kernel is built
#else
  constexpr bool kBuilt = true;
#endif
  constexpr std::int64_t kMax = std::int64_t{1} << 30;  // TMA coordinates have 32 bits
  return kBuilt && job.a.cols() > 0 && job.a.cols() < kMax && job.a.rows() < kMax &&
         job.b.rows() < kMax &&
         job.out.rows < kMax &&  // more than A's rows, where a batch shares A
         job.out.dtype != DType::f64;
}

bool fits_fp8(const GemmJob& job) {
  const bool sums_fit = job.accumulator == Accumulator::native ||
                        (job.accumulator == Accumulator::hopper_fp8 && job.promote_every == kBlock);
  return sizes_fit(job) && sums_fit && operand_fits(job.a) && operand_fits(job.b);
}

void gemm_fp8(const Exec& exec, const GemmJob& job, const GemmShape* shape,
              const LaunchPredicate* predicate) {
  gemm_in_tiles(
      exec, job,
      shape != nullptr ? tiling_in(job, *shape) : choose_tiling(job, clusters_on(exec, 1)),
      predicate);
}

void gemm_in_tiles(const Exec& exec, const GemmJob& job, const GemmTiling& tiling,
                   const LaunchPredicate* predicate) {
  const GemmOperand& rows = tiling.swap_ab ? job.b : job.a;
  const GemmOperand& cols = tiling.swap_ab ? job.a : job.b;
  const Readable row_codes(exec, rows.quantized.codes), col_codes(exec, cols.quantized.codes);
  const GemmShape& shape = tiling.shape;
  // For scales at the end, a per-tensor scale is not copied for each row; along K, neither is one
  // that a tile shares.
  const bool at_end = tiling.scales == ScaleKind::at_end;
  const Plane row_scales(
      exec, rows, at_end ? same_within(rows, rows.rows()) : tiling.scales == ScaleKind::by_column),
      col_scales(exec, cols,
                 at_end ? same_within(cols, cols.rows()) : tiling.scales == ScaleKind::by_row);

  const auto box = [&](int size, bool shared) { return shared ? size / shape.blocks : size; };
  GemmPlan plan{
      .rows_tensor_map = tensor_map_of(row_codes.codes(), box(shape.rows(), shape.multicasts_rows)),
      .cols_tensor_map = tensor_map_of(col_codes.codes(), box(shape.cols, !shape.multicasts_rows)),
      .row_scales = row_scales.plane(),
      .col_scales = col_scales.plane(),
      .epilogue = epilogue_of(job),
      .swap_ab = tiling.swap_ab,
      .row_count = static_cast<std::int32_t>(rows.rows()),
      .col_count = static_cast<std::int32_t>(cols.rows())};
  const int group_cols = shape.group_cols();
  // A TMA store box has 64 columns of the result: the rows of a warpgroup (swap-AB), or its
  // columns.
  plan.uses_tma_store =
      plan.epilogue.is_plain() && fits_tensor_map(job.out) && (tiling.swap_ab || group_cols >= 64);
  if (plan.uses_tma_store)
    plan.out_tensor_map = tensor_map_of(job.out, tiling.swap_ab ? group_cols : 64);
  std::int64_t unit_rows = tile_count(shape.unit_rows(), rows.rows()),
               unit_cols = tile_count(shape.unit_cols(), cols.rows());
  std::optional<PlanGroups> groups;
  if (job.group_count > 0) {
    groups.emplace(
        exec, job, shape, tiling.swap_ab,
        PlanGroups::Even{.rows = plan.row_scales.each == 1, .cols = plan.col_scales.each == 1});
    if (groups->units() == 0) return;
    plan.groups = groups->on_device();
    plan.group_count = groups->count();
    unit_rows = groups->units();
    unit_cols = 1;
  }
  plan.schedule = make_schedule(static_cast<int>(unit_rows), static_cast<int>(unit_cols),
                                static_cast<int>(tile_count(stage_elements(job.a), job.a.cols())),
                                clusters_on(exec, shape.blocks), shape.uses_stream_k());

  const SumSlots slots(exec,
                       plan.schedule.stream_k_units > 0 ? std::int64_t{plan.schedule.clusters} *
                                                              shape.blocks * shape.warpgroups()
                                                        : 0,
                       group_cols);
  slots.give_to(plan);
  if (predicate != nullptr) plan.predicate = *predicate;
  launch(exec, plan, tiling, row_codes.codes(), col_codes.codes());
}

}  // namespace octavo::cuda
