#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/pipeline/stream/work_loop_internal.h"

namespace octavo {
namespace {

constexpr std::chrono::milliseconds kBetweenReports{200};

}  // namespace

WorkLoop::WorkLoop(int threads, std::uint64_t bytes_total, OnProgress on_progress, bool always)
    : threads_(threads),
      bytes_total_(bytes_total),
      on_progress_(std::move(on_progress)),
      always_(always) {}

void WorkLoop::run(std::size_t pieces, const std::function<void(int, std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr thrown;
  std::size_t thrown_at = pieces;
  parallel_for(threads_, threads_, [&](int thread) {
    while (!stop.load(std::memory_order_relaxed)) {
      const std::size_t piece = next.fetch_add(1);
      if (piece >= pieces) return;
      try {
        work(thread, piece);
      } catch (...) {  // an exception must not escape a pool thread
        const std::lock_guard lock(mutex);
        stop.store(true);
        if (thrown && thrown_at < piece) continue;
        thrown = std::current_exception();
        thrown_at = piece;
      }
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

void WorkLoop::advance(std::uint64_t bytes, std::string_view current) {
  bytes_done_.fetch_add(bytes);
  if (!on_progress_) return;
  const std::unique_lock lock(telling_, std::try_to_lock);
  if (lock.owns_lock() && (always_ || std::chrono::steady_clock::now() - told_ >= kBetweenReports))
    tell(current);
}

void WorkLoop::finish(std::string_view current) {
  const std::lock_guard lock(telling_);
  if (on_progress_) tell(current);
}

void WorkLoop::tell(std::string_view current) {
  told_ = std::chrono::steady_clock::now();
  const bool go_on = on_progress_({.bytes_done = bytes_done_.load(),
                                   .bytes_total = bytes_total_,
                                   .seconds = seconds(),
                                   .current = current});
  if (!go_on)
    fail(ErrorCode::unsupported, "quantize",
         "stopped as asked; finished files are kept, resume goes on");
}

double WorkLoop::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace octavo
