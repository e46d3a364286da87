// MX exponent alignment (align_exponents): the new code of a code is looked up in a table, one
// block of a row at a time.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "octavo/backend/align_job.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

// Every number of either format is zero after this many halvings: the largest of e5m2 is below
// 2^16, and what is below 2^-17 becomes zero.
constexpr int kMaxSteps = 33;

// A table of the codes of one format, times 2^-steps.
struct Lowered {
  std::array<std::uint8_t, 256> code{}, changed{};
};

using LoweredBy = std::array<Lowered, kMaxSteps + 1>;  // by steps

LoweredBy lowered_codes(const Format& format) {
  LoweredBy made;
  for (int steps = 0; steps <= kMaxSteps; ++steps) {
    Lowered& table = made[static_cast<std::size_t>(steps)];
    for (std::uint32_t code = 0; code < 256; ++code) {
      const double wanted = decode(format, code) * power_of_two(-steps);
      const bool stays = is_nan(format, code) || is_inf(format, code);
      const std::uint32_t to = stays ? code : encode_value(format, wanted, {}, 0).code;
      table.code[code] = static_cast<std::uint8_t>(to);
      table.changed[code] = !stays && decode(format, to) != wanted ? 1 : 0;
    }
  }
  return made;
}

const LoweredBy& tables_of(const Format& format) {
  static const LoweredBy kE4m3 = lowered_codes(e4m3fn), kE5m2 = lowered_codes(e5m2);
  return format == e5m2 ? kE5m2 : kE4m3;
}

std::uint8_t exponent_at(const Matrix& scales, std::int64_t row, std::int64_t block) {
  return static_cast<std::uint8_t>(*element(scales, row, block));
}

// Aligns the blocks that share one scale; returns the number of changed codes.
std::int64_t align_run(const MxAlignJob& job, const LoweredBy& tables, std::int64_t row,
                       std::int64_t first, std::int64_t end, std::byte* scale_to) {
  const Matrix& scales = job.from.scales;
  std::uint8_t top = 0;
  for (std::int64_t col = first; col < end; col += kMxBlock)
    top = std::max(top, exponent_at(scales, row, col / kMxBlock));
  const auto scale = static_cast<float>(decode(scales.format, top));
  std::memcpy(scale_to, &scale, sizeof scale);
  std::int64_t changed = 0;
  for (std::int64_t col = first; col < end; col += kMxBlock) {
    const std::int64_t n = std::min(kMxBlock, end - col);
    const auto* from = reinterpret_cast<const std::uint8_t*>(element(job.from.codes, row, col));
    auto* to = reinterpret_cast<std::uint8_t*>(element(job.to.codes, row, col));
    const int steps =
        is_nan(scales.format, top) ? 0 : top - exponent_at(scales, row, col / kMxBlock);
    if (steps == 0) {
      if (to != from) std::memcpy(to, from, static_cast<std::size_t>(n));
      continue;
    }
    const Lowered& table = tables[static_cast<std::size_t>(std::min(steps, kMaxSteps))];
    for (std::int64_t i = 0; i < n; ++i) {
      changed += table.changed[from[i]];
      to[i] = table.code[from[i]];
    }
  }
  return changed;
}

}  // namespace

void align_exponents_matrix(const Exec& exec, const MxAlignJob& job) {
  const std::int64_t rows = job.from.codes.rows, cols = job.from.codes.cols;
  if (rows == 0 || cols == 0) return;
  const std::int64_t run = tile_extent(job.to.tile.cols, cols);
  const LoweredBy& tables = tables_of(job.from.codes.format);
  std::atomic<std::int64_t> changed{0};
  parallel_units(rows, useful_threads(exec, rows * cols), [&](std::int64_t row) {
    std::int64_t here = 0;
    for (std::int64_t first = 0; first < cols; first += run)
      here += align_run(job, tables, row, first, std::min(first + run, cols),
                        element(job.to.scales, row, first / run));
    if (here > 0) changed += here;
  });
  if (job.changed != nullptr) *job.changed += changed;
}

}  // namespace octavo::cpu
