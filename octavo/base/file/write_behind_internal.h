// Write-behind buffer of a large file: callers fill chunks, a background thread writes them. Chunks
// bypass the page cache (O_DIRECT) where the file system supports it: the bytes do not occupy page
// cache that other data could use, and fsync has nothing left to do.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace octavo {

class WriteBehind {
 public:
  static constexpr std::size_t kChunk = 512 * 1024;
  // Alignment of address, offset and size for O_DIRECT; no disk or file system requires more.
  static constexpr std::size_t kAlignment = 4096;

  // `descriptor` is open for writing, stays the caller's, and is the file named `path`. Uses
  // `memory` bytes for chunks, at least two of them.
  WriteBehind(int descriptor, const std::string& path, std::uint64_t memory);
  ~WriteBehind();  // what is not written by then is not written
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // From any thread. Blocks while all of the memory waits for the disk. Returns 0, or the errno of
  // some earlier piece that could not be written.
  [[nodiscard]] int write(std::uint64_t offset, std::span<const std::byte> bytes);
  // Writes all that is left; nothing may be written after it.
  [[nodiscard]] int finish();

 private:
  struct Freed {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  using Buffer = std::unique_ptr<std::byte[], Freed>;
  struct Chunk {
    std::uint64_t offset = 0;
    Buffer bytes{};
    int writers = 0;  // threads that are copying into it now
    std::vector<std::pair<std::size_t, std::size_t>> filled{};  // begin, end; apart, in order
    [[nodiscard]] bool is_full() const {
      return filled.size() == 1 && filled.front() == std::pair<std::size_t, std::size_t>(0, kChunk);
    }
    void note(std::size_t begin, std::size_t end);
  };
  using Chunks = std::list<Chunk>;

  Chunks::iterator open_chunk(std::uint64_t offset, std::unique_lock<std::mutex>& lock);
  void hand_over(Chunks::iterator chunk);
  void hand_over_oldest();
  void write_chunks();
  [[nodiscard]] int write_chunk(const Chunk& chunk);
  void stop(bool drop);

  int descriptor_, direct_ = -1;
  std::size_t most_, made_ = 0;
  std::mutex mutex_;
  std::condition_variable handed_over_, written_;
  Chunks open_, waiting_;  // open ones by when they were last added to
  std::vector<Buffer> free_;
  bool writing_ = false, stop_ = false;
  int error_ = 0;
  std::thread thread_;
};

}  // namespace octavo
