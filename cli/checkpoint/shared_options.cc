#include "cli/checkpoint/shared_options.h"

#include <string>
#include <vector>

#include "cli/checkpoint/quantize_checkpoint_options.h"
#include "cli/command.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "cli/text/option_words.h"
#include "cli/text/suggest.h"
#include "octavo/base/error.h"
#include "octavo/base/launcher.h"

namespace octavo::cli {
void add_shared_options(CLI::App& app, SharedArguments& arguments) {
  app.add_option("--plan", arguments.plan,
                 "A plan (octavo plan): this is one of several processes that divide its files")
      ->type_name("FILE");
  app.add_option("--rank", arguments.rank,
                 "Which process this is, from 0 on (default: what Slurm, mpirun or torchrun says)")
      ->type_name("R");
  app.add_option("--world", arguments.world, "How many processes there are (default: the same)")
      ->type_name("N");
  app.add_option(
         "--takeover-after", arguments.takeover_after,
         "Take over files of a process that gives no sign of life for so long (default 120)")
      ->type_name("SECONDS");
}

void check_shared_options(const std::string& op, const CLI::App& app,
                          const SharedArguments& arguments) {
  if (!is_shared(arguments)) {
    for (const char* const name : {"--rank", "--world", "--takeover-after"})
      if (app.get_option(name)->count() > 0)
        throw UsageError(text("[", op, "] got ", name,
                              ", which is for processes that share a plan; give one (--plan; "
                              "octavo plan makes it)"));
    return;
  }
  std::vector<std::string> said = plan_option_names();
  said.insert(said.end(), {"--dry-run", "--compare", "--sweep"});
  for (const std::string& name : said)
    if (const CLI::Option* const option = app.get_option_no_throw(name);
        option != nullptr && option->count() > 0)
      throw UsageError(text("[", op, "] got ", name,
                            ", and the plan says what is done, for all processes; leave it out, or "
                            "make another plan (octavo plan)"));
}

std::optional<SharedRun> shared_run(const std::string& op, const SharedArguments& arguments) {
  if (!is_shared(arguments)) return std::nullopt;
  SharedRun out{.plan = arguments.plan};
  try {
    const RankOfWorld me = rank_of_world(op, {arguments.rank, arguments.world});
    out.rank = me.rank;
    out.world = me.world;
    if (arguments.takeover_after) out.takeover_after = *arguments.takeover_after;
    check_shared_run(out);
  } catch (const Error& error) {
    throw UsageError(text("[", op, "] ", with_flags(reason_of(error))));
  }
  return out;
}

std::string shared_text(const SharedRun& shared, const std::string& output,
                        std::int64_t files_written, std::int64_t taken_over, bool finished_here,
                        bool was_complete, const std::vector<std::string>& written_again) {
  if (was_complete)
    return text("octavo: '", cli::shown(output), "' was complete: ",
                written_again.empty()
                    ? std::string("nothing was done")
                    : text(grouped(written_again.size(), "missing file"),
                           " written again, such as '", cli::shown(written_again.front()), "'"));
  return text(
      "octavo: rank ", shared.rank, " of ", shared.world, " wrote ", grouped(files_written, "file"),
      taken_over > 0 ? text(", ", taken_over, " of jobs that another left") : std::string(),
      finished_here ? " and finished '" : "; another process finished '", cli::shown(output), "'");
}

}  // namespace octavo::cli
