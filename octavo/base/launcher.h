// Which of several processes this one is, as the launcher says that started them: torchrun, Ray,
// Open MPI, MPICH or Slurm. Environment variables alone; no messages are sent.
//   const RankOfWorld me = rank_of_world("quantize", {});
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "octavo/base/macros.h"

namespace octavo {

inline constexpr int kMaxWorld = 65536;

struct RankOfWorld {
  int rank = 0, world = 1;
  std::string launcher{};  // "Slurm"; empty: the user said it, or there is one process
};

// What the user says, which goes before what is found.
struct GivenRank {
  std::optional<int> rank{}, world{};
};

// What the launcher nearest to this process says: one that was started by another is asked first
// (torchrun in a Slurm step). Without a launcher the rank is 0 of 1. A Kubernetes indexed job gives
// a rank alone (JOB_COMPLETION_INDEX), which counts where a world is given. Throws
// Error(invalid_argument) for a variable that is no number, for a rank without a world, and for a
// rank beyond its world.
[[nodiscard]] OCTAVO_API RankOfWorld rank_of_world(std::string_view op, const GivenRank& given);

}  // namespace octavo
