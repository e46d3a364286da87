// Packing of operand rows into the panels that a microkernel reads.
#include "octavo/backend/cpu/gemm/gemm_pack.h"

#include <algorithm>
#include <cstring>

namespace octavo::cpu {
namespace {

template <typename Word>
void interleave(const std::byte* const* rows, int count, std::int64_t words, std::byte* panel) {
  auto* to = reinterpret_cast<Word*>(panel);
  for (int r = 0; r < count; ++r) {
    const std::byte* from = rows[r];
    for (std::int64_t i = 0; i < words; ++i)
      std::memcpy(to + i * count + r, from + i * static_cast<std::int64_t>(sizeof(Word)),
                  sizeof(Word));
  }
}

}  // namespace

void interleave_words(const std::byte* const* rows, int count, std::int64_t words,
                      std::int64_t bytes, std::byte* panel) {
  switch (bytes) {
    case 1:
      return interleave<std::uint8_t>(rows, count, words, panel);
    case 2:
      return interleave<std::uint16_t>(rows, count, words, panel);
    case 4:
      return interleave<std::uint32_t>(rows, count, words, panel);
    default:
      return interleave<std::uint64_t>(rows, count, words, panel);
  }
}

const std::byte* padded(const GemmOperandRows& operand, bool as_codes, std::int64_t bytes,
                        std::int64_t row, std::int64_t k, std::int64_t n, std::int64_t wanted,
                        std::byte* stage) {
  if (row >= operand.rows()) {
    std::memset(stage, 0, static_cast<std::size_t>(wanted * bytes));
    return stage;
  }
  const std::byte* piece =
      as_codes ? operand.codes(row, k, n, stage) : operand.piece(row, k, n, stage);
  if (wanted == n) return piece;
  if (piece != stage) std::memcpy(stage, piece, static_cast<std::size_t>(n * bytes));
  std::memset(stage + n * bytes, 0, static_cast<std::size_t>((wanted - n) * bytes));
  return stage;
}

const std::byte* padded_nibbles(const GemmOperandRows& operand, std::int64_t row, std::int64_t k,
                                std::int64_t n, std::int64_t wanted, std::byte* stage) {
  if (row < operand.rows() && wanted == n) return operand.nibbles(row, k);
  std::memset(stage, 0, static_cast<std::size_t>(wanted / 2));
  if (row >= operand.rows()) return stage;
  std::memcpy(stage, operand.nibbles(row, k), static_cast<std::size_t>((n + 1) / 2));
  if (n % 2 != 0) stage[n / 2] &= std::byte{15};  // the last byte may hold anything above its code
  return stage;
}

void pack_panel(const GemmMethod& method, PanelOf side, const GemmOperandRows& operand,
                std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
                std::int64_t wanted, std::byte* stage, std::byte* panel) {
  if (operand.in_panels() && operand.unpack(first_row, count, k, wanted, panel)) return;
  if (wanted == n && operand.pack(first_row, count, k, n, panel)) return;
  const std::byte* rows[kMaxPanelRows];
  const std::int64_t packed_size = packed_bytes(method.packed_type);
  for (int r = 0; r < count; ++r)
    rows[r] = padded(operand, false, packed_size, first_row + r, k, n, wanted,
                     stage + r * wanted * packed_size);
  const int step = side == PanelOf::a ? method.tile.step_of_a() : method.tile.step;
  const std::int64_t words = wanted / step;
  if (side == PanelOf::a && method.interleave_a != nullptr)
    return method.interleave_a(rows, count, words, panel);
  if (method.interleave != nullptr) return method.interleave(rows, count, words, panel);
  interleave_words(rows, count, words, packed_size * step, panel);
}

void pack_scales(const GemmOperandRows& operand, std::int64_t first_row, int count, std::int64_t k,
                 std::int64_t run, std::int64_t runs, float* to) {
  if (operand.have_one_scale(first_row, count)) {
    alignas(64) float scales[kMaxKc];
    operand.scales(first_row, k, run, runs, scales, 1);
    for (std::int64_t i = 0; i < runs; ++i) std::fill_n(to + i * count, count, scales[i]);
    return;
  }
  for (int r = 0; r < count; ++r) {
    if (first_row + r < operand.rows()) {
      operand.scales(first_row + r, k, run, runs, to + r, count);
    } else {
      for (std::int64_t i = 0; i < runs; ++i) to[i * count + r] = 0.0F;
    }
  }
}

void pack_all_scales(const GemmOperandRows& operand, std::int64_t first_row, int count,
                     std::int64_t run, std::int64_t runs, float* to) {
  const std::int64_t some = std::max<std::int64_t>(1, kMaxKc / run);
  for (std::int64_t r = 0; r < runs; r += some)
    pack_scales(operand, first_row, count, r * run, run, std::min(some, runs - r), to + r * count);
}

}  // namespace octavo::cpu
