// Progress display of checkpoint commands: a bar with the current tensor on a terminal, a line
// every few seconds elsewhere; and Ctrl-C, which cancels between two work items.
#pragma once

#include <chrono>
#include <string>

#include "octavo/base/progress.h"

namespace octavo::cli {

class CheckpointWatch {
 public:
  explicit CheckpointWatch(std::string what);  // "quantize"
  ~CheckpointWatch();                          // clears the bar, restores signal handlers
  CheckpointWatch(const CheckpointWatch&) = delete;
  CheckpointWatch& operator=(const CheckpointWatch&) = delete;

  [[nodiscard]] OnProgress on_progress();
  [[nodiscard]] static bool interrupted();
  // Terminates by the received signal, so that a shell sees it; call after cleanup.
  [[noreturn]] static void die();

 private:
  void show(const octavo::Progress& progress);
  void clear();

  std::string what_;
  bool terminal_, drawn_ = false;
  double told_ = 0;  // seconds
};

}  // namespace octavo::cli
