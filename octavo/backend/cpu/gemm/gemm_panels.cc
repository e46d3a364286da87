// Packed weights: rows of B copied once into the order of a microkernel's panels, codes staying
// codes (PanelOrder). A GEMM decodes them without transposing.
#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_pack.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

// Of n elements in the packing of `matrix`.
std::size_t bytes_for(const Matrix& matrix, std::int64_t n) {
  return static_cast<std::size_t>(matrix.packed ? (n + 1) / 2 : n * bytes_of(matrix));
}

// n elements of a row in the packing of `to`, zero-padded to `wanted`.
void copy_row(const Matrix& from, const Matrix& to, std::int64_t row, std::int64_t k,
              std::int64_t n, std::int64_t wanted, std::byte* stage) {
  std::memset(stage, 0, bytes_for(to, wanted));
  if (row >= from.rows || n <= 0) return;
  if (to.packed) {
    std::memcpy(stage, element(from, row, k), bytes_for(to, n));
    if (n % 2 != 0) stage[n / 2] &= std::byte{15};  // the last byte may hold anything above
    return;
  }
  const void* there = gather(from, row, k, n, stage);
  if (there != stage) std::memcpy(stage, there, bytes_for(to, n));
}

// Four codes of four bits, a byte each.
std::uint32_t apart(std::uint32_t four) {
  four = (four | four << 8) & 0x00FF00FF;
  return (four | four << 4) & 0x0F0F0F0F;
}

// Words of eight codes in order to words of halves (PanelOrder).
void to_halves(std::byte* words, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i, words += 4) {
    std::uint32_t word;
    std::memcpy(&word, words, sizeof(word));
    word = apart(word & 0xFFFF) | apart(word >> 16) << 4;
    std::memcpy(words, &word, sizeof(word));
  }
}

}  // namespace

PanelOrder gemm_panels(ChooseGemm choose, const GemmOperand& b) {
  // The method of a large product of such operands.
  constexpr std::int64_t kRows = 64;
  GemmJob job{.a = b, .b = b};
  job.out.rows = kRows;
  const GemmMethod* method = choose(job);
  if (method == nullptr || method->panels == nullptr) return {};
  return method->panels(b.elements());
}

void pack_panels(const Exec& exec, const Matrix& rows, const Matrix& to) {
  constexpr std::int64_t kPiece = 256;  // elements of a row, up to 2 bytes each
  const PanelOrder& order = to.panels;
  const std::int64_t depth = PanelOrder::padded_depth(rows.cols);
  const auto pack_one = [&](std::int64_t panel) {
    alignas(64) std::byte stage[kMaxPanelRows][kPiece * 2];
    const std::byte* staged[kMaxPanelRows];
    const std::int64_t first = panel * order.cols;
    for (std::int64_t k = 0; k < depth; k += kPiece) {
      const std::int64_t wanted = std::min(kPiece, depth - k), n = std::min(wanted, rows.cols - k);
      for (int r = 0; r < order.cols; ++r) {
        copy_row(rows, to, first + r, k, n, wanted, stage[r]);
        staged[r] = stage[r];
      }
      auto* const at =
          static_cast<std::byte*>(to.data) + bytes_for(to, order.index(first, k, rows.cols));
      interleave_words(staged, order.cols, wanted / order.step,
                       static_cast<std::int64_t>(bytes_for(to, order.step)), at);
      if (order.halves) to_halves(at, order.cols * wanted / order.step);
    }
  };
  parallel_units((rows.rows + order.cols - 1) / order.cols, exec.threads, pack_one);
}

}  // namespace octavo::cpu
