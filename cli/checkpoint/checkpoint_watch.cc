#include "cli/checkpoint/checkpoint_watch.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "cli/text/suggest.h"

namespace octavo::cli {
namespace {

constexpr double kQuiet = 0.4, kFirstLine = 3, kBetweenLines = 5;  // seconds
constexpr std::size_t kBarWidth = 20;

std::atomic<int> came{0};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal_number) {
  // A second signal terminates at once.
  if (came.exchange(signal_number) != 0) std::_Exit(128 + signal_number);
}

std::string time_text(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole < 100) return formatted("{} s", whole);
  if (whole < 6000) return formatted("{}:{:02} min", whole / 60, whole % 60);
  return formatted("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

}  // namespace

CheckpointWatch::CheckpointWatch(std::string what)
    : what_(std::move(what)), terminal_(is_terminal(stderr)) {
  came = 0;
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal_number, remember) == SIG_IGN) std::signal(signal_number, SIG_IGN);
  // The reader of the progress output may exit before the work is done (| head): that does not end
  // the work.
  std::signal(SIGPIPE, SIG_IGN);
}

CheckpointWatch::~CheckpointWatch() {
  clear();
  prepare_signals();
}

bool CheckpointWatch::interrupted() { return came != 0; }

void CheckpointWatch::die() {
  const int signal_number = came != 0 ? came.load() : SIGINT;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
  std::_Exit(128 + signal_number);
}

OnProgress CheckpointWatch::on_progress() {
  return [this](const octavo::Progress& progress) {
    show(progress);
    return !interrupted();
  };
}

void CheckpointWatch::clear() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

void CheckpointWatch::show(const octavo::Progress& progress) {
  if (progress.bytes_total == 0) return;
  const double part = std::min(
      1.0, static_cast<double>(progress.bytes_done) / static_cast<double>(progress.bytes_total));
  const double rate = static_cast<double>(progress.bytes_done) / std::max(progress.seconds, 1e-9);
  const double left = static_cast<double>(progress.bytes_total -
                                          std::min(progress.bytes_done, progress.bytes_total)) /
                      std::max(rate, 1.0);
  const std::string figures = formatted("{:3.0f} %  {} of {}  {}/s  {} left", 100 * part,
                                        bytes_text(static_cast<double>(progress.bytes_done)),
                                        bytes_text(static_cast<double>(progress.bytes_total)),
                                        bytes_text(rate), time_text(left));
  if (!terminal_) {
    if (progress.seconds < kFirstLine || progress.seconds - told_ < kBetweenLines) return;
    told_ = progress.seconds;
    say(formatted("{}: {}", what_, figures));
    return;
  }
  if (progress.seconds < kQuiet) return;
  drawn_ = true;
  const auto filled = static_cast<std::size_t>(part * static_cast<double>(kBarWidth));
  std::string line = formatted("{} [{}{}] {}", what_, std::string(filled, '#'),
                               std::string(kBarWidth - filled, '.'), figures);
  // Limited to one line: a wrapped line could not be overwritten.
  const std::size_t columns = columns_of(stderr) - 1;
  if (line.size() + 4 < columns) line += "  " + cli::shown(progress.current);
  line.resize(std::min(line.size(), columns));
  std::fputs(("\r\x1b[K" + line).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace octavo::cli
