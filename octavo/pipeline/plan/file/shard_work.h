// How much work each output file of a plan is, and which rank of a world begins with which: the
// same division in every process, without a message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

struct ShardWork {
  std::string file;
  std::uint64_t bytes_read = 0;     // of the source
  std::uint64_t bytes_amax = 0;     // of these, read once more before: one scale for a whole weight
  std::uint64_t bytes_shared = 0;   // of these, for groups that span files
  std::uint64_t bytes_written = 0;  // of tensors
  [[nodiscard]] std::uint64_t bytes() const { return bytes_read + bytes_amax + bytes_written; }
  bool operator==(const ShardWork&) const = default;
};
[[nodiscard]] OCTAVO_API std::vector<ShardWork> shard_work(const CheckpointReader& source,
                                                           const QuantizePlan& plan);

// For each file its rank: the largest file that is left goes to the rank with the fewest bytes. A
// rank that is done with its own takes files of others, so that this is where it begins.
[[nodiscard]] OCTAVO_API std::vector<int> assign_ranks(std::span<const ShardWork> work, int world);

// How evenly that divides the work.
struct WorldBalance {
  int world = 1;
  std::size_t fewest_files = 0, most_files = 0;  // of a rank
  std::uint64_t bytes = 0, most_bytes = 0;       // of all ranks, and of the one with most
  [[nodiscard]] double mean_bytes() const { return static_cast<double>(bytes) / world; }
  // The time of the slowest rank over the mean; 1 is even.
  [[nodiscard]] double balance() const {
    return bytes == 0 ? 1.0 : static_cast<double>(most_bytes) / mean_bytes();
  }
};
[[nodiscard]] OCTAVO_API WorldBalance balance_of(std::span<const ShardWork> work, int world);

}  // namespace octavo
