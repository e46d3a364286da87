#include "cli/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

[[noreturn]] void fail_stdout() {
  fail(ErrorCode::io, "output", "could not write to standard output: ", std::strerror(errno));
}

}  // namespace

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) != 0; }

std::size_t columns_of(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// NO_COLOR and TERM are conventions of terminal programs, not switches of the library, so they are
// read here and not in base/env.h.
bool wants_color(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* terminal = std::getenv("TERM");
  if (terminal == nullptr || std::strcmp(terminal, "dumb") == 0) return false;
  return is_terminal(stream);
}

std::string Style::with(std::string_view code, std::string_view text) const {
  if (!color_) return std::string(text);
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

// Where a broken pipe does not end the program (see CheckpointWatch), output into it is dropped.
void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && errno != EPIPE)
    fail_stdout();
}

void finish_stdout() {
  if (std::fflush(stdout) != 0 && errno != EPIPE) fail_stdout();
}

void say(std::string_view text) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

}  // namespace octavo::cli
