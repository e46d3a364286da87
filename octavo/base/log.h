// Log hook for unrequested messages (a fallback, a slow path). The library prints nothing: it
// writes to a log that the caller passes in. The log remembers its messages, so the library keeps
// no state between calls.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace octavo {

class Log {
 public:
  using Write = std::function<void(std::string_view message)>;

  explicit Log(Write write) : write_(std::move(write)) {}

  // Writes a message, unless this log has written it before. May be called from any thread; writes
  // come one at a time, and `write` must not use the log itself.
  void once(std::string_view message) {
    const std::lock_guard lock(mutex_);
    if (said_.emplace(message).second) write_(message);
  }

 private:
  Write write_;
  std::mutex mutex_;
  std::set<std::string> said_;
};

}  // namespace octavo
