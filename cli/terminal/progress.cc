#include "cli/terminal/progress.h"

#include <cstdio>
#include <utility>

#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"

namespace octavo::cli {
namespace {

constexpr double kQuiet = 0.5, kBetween = 0.1;  // seconds
constexpr int kBarWidth = 24;

}  // namespace

Progress::Progress(std::string what, std::int64_t total_bytes)
    : what_(std::move(what)),
      total_(total_bytes),
      watched_(is_terminal(stderr)),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Progress::advance(std::int64_t bytes) {
  done_ += bytes;
  if (!watched_ || total_ <= 0 || seconds() < kQuiet) return;
  const Clock::time_point now = Clock::now();
  if (drawn_ && std::chrono::duration<double>(now - last_).count() < kBetween) return;
  last_ = now;
  drawn_ = true;
  const double part = static_cast<double>(done_) / static_cast<double>(total_);
  const double rate = static_cast<double>(done_) / seconds();
  const auto filled = static_cast<std::size_t>(part * kBarWidth);
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  const std::string line =
      formatted("\r\x1b[K{} [{}] {:3.0f} %  {}/s  {:.0f} s left", what_, bar, 100 * part,
                bytes_text(rate), static_cast<double>(total_ - done_) / rate);
  std::fputs(line.c_str(), stderr);
}

}  // namespace octavo::cli
