#include "octavo/base/launcher.h"

#include <array>
#include <charconv>

#include "octavo/base/env.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

struct Launcher {
  const char *name, *rank, *world;
  const char* mark;                  // a variable that has to be there, too; or null
  const char* not_within = nullptr;  // and one that may not
};
// The innermost first. srun sets the number of tasks of its step; in a batch script, which is no
// step, there is only that of the allocation. Ray Train sets what torchrun sets. RANK is a name
// that anyone may give: scripts in an allocation of Slurm export it for all that they start, so
// that there torchrun alone is believed.
constexpr std::array<Launcher, 6> kLaunchers{{
    {"torchrun", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"MPICH", "PMI_RANK", "PMI_SIZE", nullptr},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr},
    {"torch.distributed", "RANK", "WORLD_SIZE", nullptr, "SLURM_JOB_ID"},
}};
constexpr const char* kIndexedJob = "JOB_COMPLETION_INDEX";

int number(std::string_view op, const char* name, const std::string& value, int least) {
  int out = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, out);
  check(error == std::errc{} && stop == end && out >= least && out <= kMaxWorld,
        ErrorCode::invalid_argument, op, "got ", name, "='", shown(value),
        "' from the environment; expected a number from ", least, " to ", kMaxWorld,
        "; unset it, or give rank and world (options rank, world)");
  return out;
}

struct Found {
  std::string launcher{};
  std::optional<int> rank{}, world{};
};

Found found(std::string_view op) {
  for (const Launcher& one : kLaunchers) {
    const auto rank = env_of_launcher(one.rank), world = env_of_launcher(one.world);
    if (!rank || !world || (one.mark != nullptr && !env_of_launcher(one.mark)) ||
        (one.not_within != nullptr && env_of_launcher(one.not_within)))
      continue;
    return {one.name, number(op, one.rank, *rank, 0), number(op, one.world, *world, 1)};
  }
  if (const auto index = env_of_launcher(kIndexedJob))
    return {"Kubernetes", number(op, kIndexedJob, *index, 0), std::nullopt};
  return {};
}

}  // namespace

RankOfWorld rank_of_world(std::string_view op, const GivenRank& given) {
  Found of;
  if (!given.rank || !given.world) of = found(op);
  const std::optional<int> rank = given.rank ? given.rank : of.rank;
  const std::optional<int> world = given.world ? given.world : of.world;
  if (rank && !world && given.rank)
    fail(ErrorCode::invalid_argument, op, "got rank ", *rank,
         " and not how many processes there are; give it (option world)");
  if (rank && !world) return {};  // an indexed job of which each process works on its own
  if (world && !rank && *world > 1)
    fail(ErrorCode::invalid_argument, op, "got a world of ", *world,
         " and not which of them this process is; give it (option rank), or start it with a "
         "launcher");
  const RankOfWorld out{rank.value_or(0), world.value_or(1),
                        given.rank && given.world ? std::string() : of.launcher};
  check(out.world >= 1 && out.world <= kMaxWorld, ErrorCode::invalid_argument, op,
        "got a world of ", out.world, "; expected 1 to ", kMaxWorld);
  check(out.rank >= 0 && out.rank < out.world, ErrorCode::invalid_argument, op, "got rank ",
        out.rank, " in a world of ", out.world, "; expected 0 to ", out.world - 1,
        out.launcher.empty() ? std::string()
                             : text(" (", out.launcher, " is asked for what is not ", "given)"));
  return out;
}

}  // namespace octavo
