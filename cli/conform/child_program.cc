#include "cli/conform/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

constexpr std::string_view kOp = "conform";
constexpr std::size_t kLongestLine = 1 << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Waits until a pipe is ready; false when the time is over.
bool wait_for(int pipe, short events, double until) {
  while (true) {
    const double left = until - now();
    if (left <= 0) return false;
    pollfd one{.fd = pipe, .events = events, .revents = 0};
    const int found = ::poll(&one, 1, static_cast<int>(std::ceil(std::min(left, 60.0) * 1000)));
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return false;
  }
}

// The process group that a signal ends with this program: the terminal's Ctrl-C reaches this
// program's own group alone.
volatile sig_atomic_t running_group = 0;
constexpr std::array<int, 3> kEndingSignals{SIGINT, SIGTERM, SIGHUP};

void end_group_and_die(int signal_number) {
  if (running_group > 0) ::kill(-static_cast<pid_t>(running_group), SIGKILL);
  constexpr std::string_view kSaid = "octavo: [conform] interrupted; the program was ended\n";
  if (::write(STDERR_FILENO, kSaid.data(), kSaid.size()) < 0) {
    // There is no one to tell.
  }
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() {
    check(::pipe2(ends.data(), O_CLOEXEC) == 0, ErrorCode::io, kOp,
          "got no pipe: ", std::strerror(errno));
  }
};

}  // namespace

ChildProgram::ChildProgram(std::string command, double limit_seconds)
    : command_(std::move(command)), limit_seconds_(limit_seconds) {
  // A program that ends must not end this one with SIGPIPE.
  ::signal(SIGPIPE, SIG_IGN);
  const Pipe to, from;
  pid_ = ::fork();
  check(pid_ >= 0, ErrorCode::io, kOp, "got no process for '", shown(command_, 100),
        "': ", std::strerror(errno));
  if (pid_ == 0) {
    // A process group of its own, so that what a shell started ends with it.
    ::setpgid(0, 0);
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(to.ends[0], STDIN_FILENO);
    ::dup2(from.ends[1], STDOUT_FILENO);
    ::execl("/bin/sh", "sh", "-c", command_.c_str(), nullptr);
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);
  running_group = pid_;
  for (std::size_t i = 0; i < kEndingSignals.size(); ++i) {
    before_[i] = ::signal(kEndingSignals[i], end_group_and_die);
    // Signals ignored at start (nohup, &) stay ignored.
    if (before_[i] == SIG_IGN) ::signal(kEndingSignals[i], SIG_IGN);
  }
  ::close(to.ends[0]);
  ::close(from.ends[1]);
  to_ = to.ends[1];
  from_ = from.ends[0];
  ::fcntl(to_, F_SETFL, O_NONBLOCK);
}

ChildProgram::~ChildProgram() {
  end();
  running_group = 0;
  for (std::size_t i = 0; i < kEndingSignals.size(); ++i) ::signal(kEndingSignals[i], before_[i]);
}

void ChildProgram::end() {
  if (pid_ < 0) return;
  ::close(to_);
  ::close(from_);
  // Its input has ended: it may end by itself, unless it has shown that it does not.
  for (int tries = gave_up_ ? 0 : 50; tries > 0; --tries) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      ::kill(-pid_, SIGKILL);
      pid_ = -1;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void ChildProgram::fail_ended() {
  int status = 0;
  std::string how = "closed its output";
  for (int tries = 0; tries < 50 && pid_ > 0; ++tries) {
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      // A shell's exit code is 128 and the signal of its program.
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      how = code > 128 ? text("ended by signal ", code - 128) : text("ended with exit code ", code);
      ::kill(-pid_, SIGKILL);
      ::close(to_);
      ::close(from_);
      pid_ = -1;
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  gave_up_ = true;
  fail(ErrorCode::io, kOp, "'", shown(command_, 100), "' ", how,
       " before it answered; expected a line for every request until its input ends");
}

void ChildProgram::write_all(const std::string& text, double until) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(to_, text.data() + done, text.size() - done);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      if (!wait_for(to_, POLLOUT, until)) return;  // the time limit of the answer says so
    } else if (errno != EINTR) {
      fail_ended();
    }
  }
}

std::string ChildProgram::ask(const std::string& line) {
  if (pid_ < 0) fail_ended();
  const double until = now() + limit_seconds_;
  write_all(line + "\n", until);
  while (true) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string answer = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (!answer.empty() && answer.back() == '\r') answer.pop_back();
      return answer;
    }
    gave_up_ = true;  // until there is an answer
    check(buffer_.size() < kLongestLine, ErrorCode::io, kOp, "got ", buffer_.size(),
          " bytes from '", shown(command_, 100), "' without the end of a line, '",
          shown(buffer_, 40), "...'; expected a line");
    check(wait_for(from_, POLLIN, until), ErrorCode::io, kOp, "got no answer from '",
          shown(command_, 100), "' within ", limit_seconds_, " s to '", shown(line, 40),
          "...'; expected a line (does it flush its output?); --timeout gives it more");
    std::array<char, 4096> piece{};
    const ssize_t count = ::read(from_, piece.data(), piece.size());
    if (count == 0) fail_ended();
    if (count < 0 && errno != EINTR) fail_ended();
    if (count > 0) buffer_.append(piece.data(), static_cast<std::size_t>(count));
    gave_up_ = false;
  }
}

}  // namespace octavo::cli
