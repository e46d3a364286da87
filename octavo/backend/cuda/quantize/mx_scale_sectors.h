// MX scales stored in whole 32-byte sectors. Eight 128 x 128 tiles in a row have a word of four
// scales each for each of their 128 lines: 32 bytes per line, one sector. No tile has a sector to
// itself, so a tile first fills the sectors of sixteen of the lines with all of its 128 words, and
// when all tiles are done a second kernel sorts the words of each 128 sectors.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"
#include "octavo/base/macros.h"

namespace octavo::cuda {

inline constexpr int kSectorBytes = 32;
inline constexpr int kSectorLines = 128;                              // of a tile
inline constexpr int kSectorTiles = kSectorBytes / 4;                 // that share a sector
inline constexpr int kLinesOfTile = kSectorLines * 4 / kSectorBytes;  // whose sectors it fills

// Where the word of a line of a tile is until it is sorted.
struct SectorWord {
  int line, word;
};
OCTAVO_HD constexpr SectorWord sector_word(int tile, int line) {
  return {tile * kLinesOfTile + line / kSectorTiles, line % kSectorTiles};
}

struct SharedSectors {
  unsigned char* scales;
  std::int64_t pitch;
  std::int64_t lines;   // only those of whole tiles are sorted
  std::int64_t length;  // values along a line; a multiple of those of eight tiles
};
void sort_sectors(const Exec&, const SharedSectors& rows, const SharedSectors& columns);

}  // namespace octavo::cuda
