#include "cli/terminal/signals.h"

#include <csignal>

#include "octavo/base/file/whole_file.h"

namespace octavo::cli {
namespace {

void remove_and_die(int signal_number) {
  remove_unfinished_files();
  // Restores the default action and re-raises, so that the parent sees termination by this signal.
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

}  // namespace

void prepare_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    // Signals ignored at start (nohup, &) stay ignored.
    if (std::signal(signal_number, remove_and_die) == SIG_IGN) std::signal(signal_number, SIG_IGN);
  }
}

}  // namespace octavo::cli
