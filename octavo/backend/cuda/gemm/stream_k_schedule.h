// Stream-K schedule with a fixed order of sums: which K blocks of which output tiles each cluster
// computes, and in which order.
//
// The result is divided into units (one tile for each block of a cluster), and K into K blocks.
// Full waves of units are data-parallel: one unit per cluster, all of K. The partial wave at the
// end would leave most clusters idle, so its units and those of the last full wave are split evenly
// by stream-K instead: cluster c computes the K blocks [c, c + 1) * all / clusters of them, in one
// sequence from the first unit to the last. A split unit has its first part computed by cluster c
// and its second by c + 1.
//
// Full waves come first, while all clusters are at the same K block and operands that they share
// are read from L2 by several at once. In its stream-K part a cluster computes FIRST the partial
// tile that the next cluster waits for, and LAST the tile that continues partial sums of the
// cluster before: the stream-K part of a cluster is longer than a unit, so those sums are there by
// then. Because the second part of a unit continues from the partial sums of the first, every sum
// runs from k = 0 on in one order, whatever the split: the schedule cannot change a bit.
//
// A cluster waits for the one before it while it occupies its SMs. There is no deadlock where all
// clusters are co-resident, which is what their number is chosen for. Where a process has fewer SMs
// than the device reports (MPS with a limit, green contexts), this relies on clusters starting in
// ascending order, which CUDA does not promise: the cluster before has then started, and hands over
// its sums before it waits.
#pragma once

#include <cstdint>
#include <limits>

#include "octavo/base/macros.h"

namespace octavo::cuda {

struct WorkTile {
  int unit = 0;  // of all units, in the order in which they are computed
  int unit_row = 0, unit_col = 0;
  int first = 0, end = 0;   // K blocks
  bool continues = false;   // continues from the partial sums of the cluster before
  bool is_partial = false;  // hands over its sums to the next cluster
};

struct StreamKSchedule {
  int unit_rows = 0, unit_cols = 0;
  int k_blocks = 0;
  int clusters = 0;
  int stream_k_units = 0;           // units at the end that are split by K blocks
  int k_blocks_each = 0, more = 0;  // per cluster; clusters with one more
  // Rasterization: units go down this many rows of units before the next column, so that concurrent
  // units share operands in L2.
  int raster_rows = 8;

  [[nodiscard]] OCTAVO_HD constexpr int units() const { return unit_rows * unit_cols; }
  [[nodiscard]] OCTAVO_HD constexpr int whole() const { return units() - stream_k_units; }

  // The first stream-K block of a cluster, where that of the cluster before ends.
  [[nodiscard]] OCTAVO_HD constexpr int stream_k_begin(int cluster) const {
    return cluster * k_blocks_each + (cluster < more ? cluster : more);
  }
  [[nodiscard]] OCTAVO_HD constexpr int waves(int cluster) const {
    return whole() > cluster ? (whole() - cluster - 1) / clusters + 1 : 0;
  }

  [[nodiscard]] OCTAVO_HD constexpr int work_tiles(int cluster) const {
    if (stream_k_units == 0) return waves(cluster);
    const int from = stream_k_begin(cluster), end = stream_k_begin(cluster + 1);
    return waves(cluster) + (end - 1) / k_blocks - from / k_blocks + 1;
  }

  // Whether one of the work tiles of a cluster is a partial tile. There is at most one.
  [[nodiscard]] OCTAVO_HD constexpr bool hands_over_sums(int cluster) const {
    return stream_k_units > 0 && stream_k_begin(cluster + 1) % k_blocks > 0;
  }

  // Work tile i of a cluster, of work_tiles(cluster).
  [[nodiscard]] OCTAVO_HD constexpr WorkTile work_tile(int cluster, int i) const {
    const int before = waves(cluster);
    if (i < before) return at(cluster + i * clusters, 0, k_blocks);
    i -= before;
    const int from = stream_k_begin(cluster), end = stream_k_begin(cluster + 1);
    const int first_unit = from / k_blocks, last_unit = end / k_blocks;
    const int first_k = from - first_unit * k_blocks, last_k = end - last_unit * k_blocks;
    if (last_k > 0) {
      if (i == 0) {
        WorkTile work_tile = at(whole() + last_unit, 0, last_k);
        work_tile.is_partial = true;
        return work_tile;
      }
      --i;
    }
    const int first_whole = first_unit + (first_k > 0 ? 1 : 0);
    if (first_whole + i < last_unit) return at(whole() + first_whole + i, 0, k_blocks);
    WorkTile work_tile = at(whole() + first_unit, first_k, k_blocks);
    work_tile.continues = true;
    return work_tile;
  }

 private:
  [[nodiscard]] OCTAVO_HD constexpr WorkTile at(int unit, int first, int end) const {
    const int before = unit / (raster_rows * unit_cols) * raster_rows;
    const int height = unit_rows - before < raster_rows ? unit_rows - before : raster_rows;
    const int within = unit - before * unit_cols;
    return {.unit = unit,
            .unit_row = before + within % height,
            .unit_col = within / height,
            .first = first,
            .end = end};
  }
};

// Stream-K splits more units than there are clusters, so that no unit is split twice, and fewer
// than twice as many. It splits none where clusters would be idle for less than a hundredth of the
// time, which is what handing over sums costs. Its K blocks are counted in 31 bits: where K has
// hundreds of millions, none are split, and none where the tile shape does not use stream-K.
constexpr StreamKSchedule make_schedule(int unit_rows, int unit_cols, int k_blocks,
                                        int most_clusters, bool uses_stream_k = true) {
  StreamKSchedule made{.unit_rows = unit_rows, .unit_cols = unit_cols, .k_blocks = k_blocks};
  const int units = made.units();
  made.clusters = units < most_clusters ? units : most_clusters;
  const int left = units % most_clusters, waves = units / most_clusters + 1;
  const bool is_worth_it = 100 * (most_clusters - left) > waves * most_clusters;
  const bool is_counted =
      std::int64_t{most_clusters + left} * k_blocks <= std::numeric_limits<int>::max();
  if (uses_stream_k && left > 0 && units > most_clusters && k_blocks >= 4 && is_worth_it &&
      is_counted) {
    made.stream_k_units = most_clusters + left;
    made.k_blocks_each = made.stream_k_units * k_blocks / most_clusters;
    made.more = made.stream_k_units * k_blocks % most_clusters;
  }
  return made;
}

}  // namespace octavo::cuda
