// --plan, --rank, --world, --takeover-after: one of several processes that make one folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/pipeline/plan/shared_run.h"

namespace CLI {
class App;  // its header takes longer to compile than most of what includes this one
}

namespace octavo::cli {

// As typed.
struct SharedArguments {
  std::string plan{};
  std::optional<int> rank{}, world{};
  std::optional<double> takeover_after{};
};

void add_shared_options(CLI::App& app, SharedArguments& arguments);
[[nodiscard]] inline bool is_shared(const SharedArguments& arguments) {
  return !arguments.plan.empty();
}
// Throws UsageError: a rank without a plan, and with one what the plan says already.
void check_shared_options(const std::string& op, const CLI::App& app,
                          const SharedArguments& arguments);
// With rank and world as typed, or as the launcher says. Without a plan there is none.
std::optional<SharedRun> shared_run(const std::string& op, const SharedArguments& arguments);

// "rank 3 of 8 wrote 20 of 163 files; another process finished 'out'".
std::string shared_text(const SharedRun& shared, const std::string& output,
                        std::int64_t files_written, std::int64_t taken_over, bool finished_here,
                        bool was_complete, const std::vector<std::string>& written_again);

}  // namespace octavo::cli
