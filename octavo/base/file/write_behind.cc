#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "octavo/base/file/write_behind_internal.h"

namespace octavo {
namespace {

int write_all(int descriptor, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return 0;
}

}  // namespace

WriteBehind::WriteBehind(int descriptor, const std::string& path, std::uint64_t memory)
    : descriptor_(descriptor),
      direct_(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT)),
      most_(static_cast<std::size_t>(std::max<std::uint64_t>(2, memory / kChunk))),
      thread_([this] { write_chunks(); }) {}

WriteBehind::~WriteBehind() {
  stop(true);
  if (direct_ >= 0) close(direct_);
}

// Keeps stretches apart and in order.
void WriteBehind::Chunk::note(std::size_t begin, std::size_t end) {
  auto at = std::find_if(filled.begin(), filled.end(),
                         [begin](const auto& stretch) { return stretch.second >= begin; });
  auto last = at;
  for (; last != filled.end() && last->first <= end; ++last) {
    begin = std::min(begin, last->first);
    end = std::max(end, last->second);
  }
  filled.insert(filled.erase(at, last), {begin, end});
}

int WriteBehind::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::unique_lock lock(mutex_);
  while (!bytes.empty()) {
    const std::size_t at = offset % kChunk, size = std::min(bytes.size(), kChunk - at);
    const auto chunk = open_chunk(offset - at, lock);
    if (error_ != 0) return error_;
    ++chunk->writers;  // it stays where it is, and others may copy into it at the same time
    lock.unlock();
    std::memcpy(chunk->bytes.get() + at, bytes.data(), size);
    lock.lock();
    --chunk->writers;
    chunk->note(at, at + size);
    if (chunk->is_full() && chunk->writers == 0) hand_over(chunk);
    // Another thread may wait for this chunk.
    if (waiting_.empty() && !writing_) written_.notify_all();
    bytes = bytes.subspan(size);
    offset += size;
  }
  return error_;
}

// Open chunks use at most half of the memory: the other half is being written. When there is no
// room, the least recently extended chunk is written as it is; such a chunk is never full again, so
// no O_DIRECT write meets cached pages of the file.
WriteBehind::Chunks::iterator WriteBehind::open_chunk(std::uint64_t offset,
                                                      std::unique_lock<std::mutex>& lock) {
  while (error_ == 0) {
    const auto found = std::find_if(open_.begin(), open_.end(),
                                    [&](const Chunk& chunk) { return chunk.offset == offset; });
    if (found != open_.end()) {
      open_.splice(open_.end(), open_, found);
      return found;
    }
    if (open_.size() > most_ / 2) hand_over_oldest();
    if (free_.empty() && made_ < most_) {
      auto* const bytes = static_cast<std::byte*>(std::aligned_alloc(kAlignment, kChunk));
      if (bytes == nullptr) throw std::bad_alloc();
      free_.emplace_back(bytes);
      ++made_;
    }
    if (!free_.empty()) {
      open_.push_back({.offset = offset, .bytes = std::move(free_.back())});
      free_.pop_back();
      return std::prev(open_.end());
    }
    if (waiting_.empty() && !writing_) hand_over_oldest();
    written_.wait(lock);
  }
  return open_.end();
}

void WriteBehind::hand_over_oldest() {
  const auto oldest = std::find_if(open_.begin(), open_.end(),
                                   [](const Chunk& chunk) { return chunk.writers == 0; });
  if (oldest != open_.end()) hand_over(oldest);
}

void WriteBehind::hand_over(Chunks::iterator chunk) {
  waiting_.splice(waiting_.end(), open_, chunk);
  handed_over_.notify_one();
}

void WriteBehind::write_chunks() {
  std::unique_lock lock(mutex_);
  while (true) {
    handed_over_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Chunk chunk = std::move(waiting_.front());
    waiting_.pop_front();
    writing_ = true;
    const bool skip = error_ != 0;
    lock.unlock();
    const int error = skip ? 0 : write_chunk(chunk);
    lock.lock();
    writing_ = false;
    if (error_ == 0) error_ = error;
    free_.push_back(std::move(chunk.bytes));
    written_.notify_all();
  }
}

int WriteBehind::write_chunk(const Chunk& chunk) {
  const std::span<const std::byte> bytes(chunk.bytes.get(), kChunk);
  if (chunk.is_full() && direct_ >= 0) {
    const int error = write_all(direct_, chunk.offset, bytes);
    if (error != EINVAL) return error;
    close(direct_);  // it can be opened and not be used
    direct_ = -1;
  }
  for (const auto& [begin, end] : chunk.filled)
    if (const int error =
            write_all(descriptor_, chunk.offset + begin, bytes.subspan(begin, end - begin)))
      return error;
  // The disk may begin at once. A hint: what it could not do is done when the file is flushed.
  if (chunk.is_full())
    (void)sync_file_range(descriptor_, static_cast<off_t>(chunk.offset), kChunk,
                          SYNC_FILE_RANGE_WRITE);
  return 0;
}

int WriteBehind::finish() {
  {
    const std::lock_guard lock(mutex_);
    open_.sort([](const Chunk& a, const Chunk& b) { return a.offset < b.offset; });
    while (!open_.empty()) hand_over(open_.begin());
  }
  stop(false);
  return error_;
}

void WriteBehind::stop(bool drop) {
  {
    const std::lock_guard lock(mutex_);
    if (drop) waiting_.clear();
    stop_ = true;
    handed_over_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace octavo
