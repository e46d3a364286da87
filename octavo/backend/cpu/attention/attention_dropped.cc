#include "octavo/backend/cpu/attention/attention_dropped.h"

#include <algorithm>

#include "octavo/base/philox.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kRows = 16;  // that go through Philox together, in vector lanes

// Draws of kRows rows and a group of keys: dropout_kept, a row a lane.
void draw(const AttentionDropout& dropout, std::int64_t batch, std::int64_t head,
          const std::uint32_t (&row)[kRows], std::int64_t group, std::uint32_t (&kept)[kRows]) {
  std::uint32_t c0[kRows], c1[kRows], c2[kRows], c3[kRows];
  for (std::int64_t r = 0; r < kRows; ++r) {
    c0[r] = static_cast<std::uint32_t>(group);
    c1[r] = row[r];
    c2[r] = static_cast<std::uint32_t>(head);
    c3[r] = static_cast<std::uint32_t>(batch);
  }
  auto key0 = static_cast<std::uint32_t>(dropout.seed),
       key1 = static_cast<std::uint32_t>(dropout.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c0[r],
                          product1 = std::uint64_t{kPhiloxMultiplier1} * c2[r];
      c0[r] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[r] ^ key0;
      c1[r] = static_cast<std::uint32_t>(product1);
      c2[r] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[r] ^ key1;
      c3[r] = static_cast<std::uint32_t>(product0);
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  const std::uint32_t least = dropout.threshold();
  for (std::int64_t r = 0; r < kRows; ++r)
    kept[r] = (c0[r] >= least ? 1u : 0u) | (c1[r] >= least ? 2u : 0u) | (c2[r] >= least ? 4u : 0u) |
              (c3[r] >= least ? 8u : 0u);
}

}  // namespace

void kept_of_rows(const AttentionDropout& dropout, std::int64_t batch, std::int64_t head,
                  const std::int64_t* row, std::int64_t n, std::int64_t group,
                  std::uint32_t* kept) {
  for (std::int64_t first = 0; first < n; first += kRows) {
    std::uint32_t rows[kRows] = {}, found[kRows];
    const std::int64_t here = std::min(kRows, n - first);
    for (std::int64_t r = 0; r < here; ++r) rows[r] = static_cast<std::uint32_t>(row[first + r]);
    draw(dropout, batch, head, rows, group, found);
    std::copy_n(found, here, kept + first);
  }
}

void drop_weights(const AttentionDropout& dropout, std::int64_t batch, std::int64_t head,
                  const DroppedPlace& at, const DroppedPanel& panel) {
  constexpr std::int64_t kMostRows = 64;
  std::uint32_t kept[kMostRows];
  for (std::int64_t key = 0; key < at.keys; key += kDropoutKeys)
    for (std::int64_t first = 0; first < at.rows; first += kMostRows) {
      const std::int64_t here = std::min(kMostRows, at.rows - first);
      kept_of_rows(dropout, batch, head, at.row + first, here, (at.first_key + key) / kDropoutKeys,
                   kept);
      for (std::int64_t j = key; j < key + kDropoutKeys; ++j) {
        std::byte* const to = panel.weights + (j / panel.step * panel.width * panel.step +
                                               first * panel.step + j % panel.step) *
                                                  panel.bytes;
        for (std::int64_t r = 0; r < here; ++r)
          if ((kept[r] >> (j - key) & 1u) == 0)
            std::fill_n(to + r * panel.step * panel.bytes, panel.bytes, std::byte{0});
      }
    }
}

}  // namespace octavo::cpu
