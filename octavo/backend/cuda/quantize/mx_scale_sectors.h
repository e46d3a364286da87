// Scales of MX that reach memory in whole sectors. Eight tiles of 128 by 128 in a row have a word
// of four scales each for every of their 128 lines: 32 bytes a line, one sector. No tile has a
// sector to itself, so a tile first fills the sectors of sixteen of the lines with all of its 128
// words, and when all tiles are done a second kernel sorts the words of each 128 sectors.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"
#include "octavo/base/macros.h"

namespace octavo::cuda {

inline constexpr int kSectorBytes = 32;
inline constexpr int kSectorLines = 128;                              // of a tile
inline constexpr int kSectorTiles = kSectorBytes / 4;                 // that share a sector
inline constexpr int kLinesOfTile = kSectorLines * 4 / kSectorBytes;  // whose sectors it fills

// Where the word of a line of a tile stays until it is sorted.
struct SectorWord {
  int line, word;
};
OCTAVO_HD constexpr SectorWord sector_word(int tile, int line) {
  return {tile * kLinesOfTile + line / kSectorTiles, line % kSectorTiles};
}

struct SharedSectors {
  unsigned char* scales;
  std::int64_t pitch;
  std::int64_t lines;   // of whole tiles only are sorted
  std::int64_t length;  // values along a line; a multiple of what eight tiles have
};
void sort_sectors(const Exec&, const SharedSectors& rows, const SharedSectors& columns);

}  // namespace octavo::cuda
