// A program that answers lines: started by a shell, asked and read through pipes, with a time
// limit.
#pragma once

#include <array>
#include <string>

namespace octavo::cli {

class ChildProgram {
 public:
  // `command` as a shell reads it. Throws Error(io) where it cannot be started.
  ChildProgram(std::string command, double limit_seconds);
  ~ChildProgram();  // ends it, and what it started; so does a signal that ends this program
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;

  // Writes a line and reads one. Throws Error(io) where the program ended, did not answer within
  // the limit, or answered with a line that has no end.
  [[nodiscard]] std::string ask(const std::string& line);

 private:
  [[noreturn]] void fail_ended();
  void write_all(const std::string& text, double until);
  void end();

  std::string command_, buffer_;
  double limit_seconds_;
  int pid_ = -1, to_ = -1, from_ = -1;
  bool gave_up_ = false;
  std::array<void (*)(int), 3> before_{};  // handlers of signals
};

}  // namespace octavo::cli
