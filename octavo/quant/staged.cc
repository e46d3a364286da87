#include <algorithm>
#include <numeric>

#include "octavo/quant/staged_internal.h"
#include "octavo/scale/hadamard.h"

namespace octavo {
namespace {

// Elements of a row block: per thread half an L2 cache in f32; on a device, which needs large
// launches, half of its L2.
constexpr std::int64_t kRowBlockElements = 64 * 1024, kDeviceRowBlockElements = 6 * 1024 * 1024;
// This many codes of any width start and end on a byte boundary.
constexpr std::int64_t kWholeBytes = 8;

void move_rows(Matrix& matrix, std::int64_t first) {
  matrix.data = static_cast<std::byte*>(matrix.data) + first * matrix.row_pitch;
}

void move_cols(Matrix& matrix, std::int64_t first) {
  matrix.data = static_cast<std::byte*>(matrix.data) +
                (matrix.packed ? first * matrix.format.bits() / 8 : first * matrix.col_stride);
}

// One scale that the job is given is that of any part, too.
bool scale_is_given(const QuantizeJob& job) {
  return job.given_amax != nullptr || job.given_inv_scale != nullptr;
}

// Rows of a rowwise copy.
QuantizedMatrix rows_of(QuantizedMatrix copy, std::int64_t first, std::int64_t count) {
  if (!copy.wanted()) return copy;
  const std::int64_t tile = tile_extent(copy.tile.rows, copy.codes.rows);
  move_rows(copy.codes, first);
  move_rows(copy.scales, first / tile);
  copy.codes.rows = count;
  copy.scales.rows = tile_count(tile, count);
  return copy;
}

// The columns of a columnwise copy that are rows of the source.
QuantizedMatrix cols_of(QuantizedMatrix copy, std::int64_t first, std::int64_t count) {
  if (!copy.wanted()) return copy;
  const std::int64_t tile = tile_extent(copy.tile.cols, copy.codes.cols);
  move_cols(copy.codes, first);
  move_cols(copy.scales, first / tile);
  copy.codes.cols = count;
  copy.scales.cols = tile_count(tile, count);
  return copy;
}

}  // namespace

QuantizeSource rows_of(const QuantizeSource& source, std::int64_t first, std::int64_t count) {
  QuantizeSource part = source;
  move_rows(part.values, first);
  part.values.rows = count;
  return part;
}

QuantizeJob rows_of(const QuantizeJob& job, std::int64_t first, std::int64_t count) {
  QuantizeJob part = job;
  part.source = rows_of(job.source, first, count);
  part.rowwise = rows_of(job.rowwise, first, count);
  part.columnwise = cols_of(job.columnwise, first, count);
  part.encode.first_index += static_cast<std::uint64_t>(first * job.source.cols());
  return part;
}

std::int64_t rows_together(const QuantizeJob& job) {
  const std::int64_t rows = std::max<std::int64_t>(job.source.rows(), 1);
  std::int64_t together = 1;
  const auto need = [&](std::int64_t multiple) {
    together = std::min(rows, std::lcm(together, std::min(multiple, rows)));
  };
  if (job.rowwise.wanted() && !scale_is_given(job)) need(tile_extent(job.rowwise.tile.rows, rows));
  if (job.hadamard_columnwise) need(kHadamardSize);
  if (job.columnwise.wanted()) {
    if (!scale_is_given(job)) need(tile_extent(job.columnwise.tile.cols, rows));
    if (job.columnwise.codes.packed) need(kWholeBytes);
    // Its draws are numbered along the rows of the transpose: a part would number them anew.
    if (job.encode.rounding == Rounding::stochastic) need(rows);
  }
  return together;
}

// Calls visit(produced rows, first row).
template <typename Visit>
void Stager::for_each_row_block(const Exec& exec, const QuantizeSource& source,
                                std::int64_t together, Visit&& visit) {
  const std::int64_t rows = source.rows(), cols = source.cols();
  const std::int64_t at_once = exec.device.kind == DeviceKind::cpu
                                   ? kRowBlockElements * std::max(exec.threads, 1)
                                   : kDeviceRowBlockElements;
  const std::int64_t wanted = at_once / std::max<std::int64_t>(cols, 1);
  const std::int64_t row_block =
      std::min(rows, std::max<std::int64_t>(1, wanted / together) * together);
  void* memory = memory_.at_least(row_block * cols);
  for (std::int64_t row = 0; row < rows; row += row_block) {
    const std::int64_t count = std::min(row_block, rows - row);
    const Matrix part{.data = memory,
                      .dtype = DType::f32,
                      .rows = count,
                      .cols = cols,
                      .row_pitch = cols * static_cast<std::int64_t>(sizeof(float)),
                      .col_stride = sizeof(float)};
    Producer producer = *source.producer;
    if (producer.mean != nullptr) producer.mean += row;
    if (producer.inv_std != nullptr) producer.inv_std += row;
    produce_(exec, rows_of(source, row, count).values, producer, part);
    visit(part, row);
  }
}

void Stager::visit(const Exec& exec, const QuantizeJob& job,
                   const std::function<void(const QuantizeJob&)>& visit_rows) {
  for_each_row_block(exec, job.source, rows_together(job),
                     [&](const Matrix& part, std::int64_t row) {
                       QuantizeJob row_block = rows_of(job, row, part.rows);
                       row_block.source = {.values = part};
                       visit_rows(row_block);
                     });
}

void Stager::quantize(const Exec& exec, const QuantizeJob& job) {
  visit(exec, job, [&](const QuantizeJob& row_block) { quantize_(exec, row_block); });
}

void Stager::amax(const Exec& exec, const QuantizeSource& source, AmaxOf of, float* found) {
  for_each_row_block(exec, source, 1, [&](const Matrix& part, std::int64_t) {
    amax_(exec, {.values = part}, of, found);
  });
}

}  // namespace octavo
