#include "octavo/tensor/reused_memory_internal.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace octavo {

class ReusedMemory::Blocks {
 public:
  struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };

  explicit Blocks(std::int64_t most_free_bytes)
      : most_free_(static_cast<std::size_t>(std::max<std::int64_t>(0, most_free_bytes))) {}
  ~Blocks() { close(); }

  // The smallest that is large enough and not much too large; nothing where there is none.
  Block take(std::size_t bytes) {
    const std::lock_guard held(mutex_);
    auto best = free_.end();
    for (auto at = free_.begin(); at != free_.end(); ++at)
      if (at->bytes >= bytes && at->bytes <= bytes + bytes / 4 &&
          (best == free_.end() || at->bytes < best->bytes))
        best = at;
    if (best == free_.end()) return {};
    const Block found = *best;
    free_.erase(best);
    free_bytes_ -= found.bytes;
    return found;
  }

  // Pushes out what has waited longest where there would be too much.
  void give(const Block& block) noexcept {
    const std::lock_guard held(mutex_);
    if (block.bytes > most_free_) return std::free(block.memory);
    try {
      free_.push_back(block);
    } catch (...) {
      return std::free(block.memory);
    }
    free_bytes_ += block.bytes;
    while (free_bytes_ > most_free_) {
      free_bytes_ -= free_.front().bytes;
      std::free(free_.front().memory);
      free_.erase(free_.begin());
    }
  }

  void close() {
    const std::lock_guard held(mutex_);
    most_free_ = 0;
    for (const Block& block : free_) std::free(block.memory);
    free_.clear();
    free_bytes_ = 0;
  }

 private:
  std::mutex mutex_{};  // tensors are freed on any thread
  std::vector<Block> free_{};
  std::size_t free_bytes_ = 0, most_free_;
};

struct ReusedMemory::Owner {
  std::shared_ptr<Blocks> blocks;

  explicit Owner(std::int64_t most_free_bytes)
      : blocks(std::make_shared<Blocks>(most_free_bytes)) {}
  ~Owner() { blocks->close(); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
};

namespace {

// A pointer, which threads that end need not destroy; scopes own what it points to.
thread_local const ReusedMemory* of_thread = nullptr;

}  // namespace

ReusedMemory::ReusedMemory(std::int64_t most_free_bytes)
    : owner_(std::make_shared<Owner>(most_free_bytes)) {}

ReusedMemory ReusedMemory::current() { return of_thread != nullptr ? *of_thread : ReusedMemory(); }

ReusedMemory::Scope::Scope(const ReusedMemory& memory) : memory_(memory), before_(of_thread) {
  of_thread = &memory_;
}

ReusedMemory::Scope::~Scope() { of_thread = before_; }

std::shared_ptr<void> ReusedMemory::take(std::size_t bytes, Allocate allocate) {
  if (of_thread == nullptr || of_thread->owner_ == nullptr || bytes < kLeastBytes) return nullptr;
  const std::shared_ptr<Blocks>& blocks = of_thread->owner_->blocks;
  Blocks::Block block = blocks->take(bytes);
  if (block.memory == nullptr) block = {allocate(bytes), bytes};
  return {block.memory, [blocks, size = block.bytes](void* memory) {
            blocks->give({memory, size});
          }};
}

}  // namespace octavo
