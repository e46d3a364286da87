#include "octavo/safetensors/file_writer.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/file_id.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/safetensors/data_checksum.h"
#include "octavo/safetensors/placement_internal.h"

namespace octavo::safetensors {
namespace {

constexpr std::uint64_t kWorthAThread = 8U << 20;

}  // namespace

FileWriter::FileWriter(const std::string& path, std::vector<TensorPlan> tensors,
                       const WriteOptions& options)
    : FileWriter(path, place_tensors(std::move(tensors), options.metadata, path), {}, options) {}

FileWriter::FileWriter(const std::string& path, Header placed, std::string_view first_bytes,
                       const WriteOptions& options)
    : sources_(options.sources),
      header_(std::move(placed)),
      file_(std::make_unique<WholeFile>(std::string(kOp), path, options.mode)),
      sums_(options.sum) {
  check_is_no_source();
  file_->reserve(static_cast<std::int64_t>(header_.data_begin + header_.data_bytes));
  if (options.write_behind > 0 && header_.data_bytes >= kWorthAThread)
    file_->write_behind(options.write_behind);
  const std::string of_header = first_bytes.empty() ? write_header(header_) : std::string();
  file_->write_at(0, std::as_bytes(std::span(first_bytes.empty() ? of_header : first_bytes)));
  fill_gaps();
}

void FileWriter::fill_gaps() {
  std::uint64_t end = 0;
  const auto fill_to = [&](std::uint64_t begin) {
    if (begin <= end) return;
    const std::vector<std::byte> zeros(static_cast<std::size_t>(begin - end));
    file_->write_at(header_.data_begin + end, zeros);
    note_written(end, begin, 0);
  };
  for (const TensorEntry& tensor : header_.tensors) {
    fill_to(tensor.begin);
    end = tensor.end;
  }
  fill_to(header_.data_bytes);
}

FileWriter::~FileWriter() = default;

void FileWriter::check_is_no_source() const {
  const std::optional<FileId> target = file_id(file_->path());
  const auto is_target = [&](const std::string& source) { return file_id(source) == target; };
  if (target && std::any_of(sources_.begin(), sources_.end(), is_target)) {
    fail_on_file(EINVAL, file_->path(), kOp, shown_file(file_->path()),
                 " is also a file to read from; expected two; write to another name");
  }
}

const TensorEntry& FileWriter::at(std::string_view name) const {
  const TensorEntry* const found = header_.find(name);
  if (found == nullptr) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file_->path()), ": ", shown_tensor(name),
         " was not planned; name it when the writer is made");
  }
  return *found;
}

void FileWriter::write(const TensorEntry& tensor, std::uint64_t offset,
                       std::span<const std::byte> bytes) {
  if (tensor.end < tensor.begin || tensor.end > header_.data_bytes) {
    fail(ErrorCode::invalid_argument, kOp, shown_tensor(tensor.name), " is not of ",
         shown_file(file_->path()), "; take it from this writer's header");
  }
  if (offset > tensor.nbytes() || bytes.size() > tensor.nbytes() - offset) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file_->path()), ": ",
         shown_tensor(tensor.name), " has ", tensor.nbytes(), " bytes, but ", bytes.size(),
         " were given for byte ", offset, " on");
  }
  if (bytes.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    check(!finished_, ErrorCode::invalid_argument, kOp, "write() after finish()");
  }
  const std::uint64_t begin = tensor.begin + offset;
  file_->write_at(header_.data_begin + begin, bytes);
  note_written(begin, begin + bytes.size(), sums_ ? piece_checksum(begin, bytes) : 0);
}

// Keeps the written ranges merged, so that writing in order needs one range.
void FileWriter::note_written(std::uint64_t begin, std::uint64_t end, std::uint64_t sum) {
  const std::lock_guard lock(mutex_);
  sum_ += sum;
  auto next = written_.upper_bound(begin);
  if (next != written_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != written_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = written_.erase(next);
  }
  written_.emplace(begin, end);
}

void FileWriter::flush() {
  const std::lock_guard lock(mutex_);
  check(!finished_, ErrorCode::invalid_argument, kOp, "flush() after finish()");
  file_->flush();
}

void FileWriter::finish() {
  const std::lock_guard lock(mutex_);
  check(!finished_, ErrorCode::invalid_argument, kOp, "finish() was called before");
  const std::uint64_t first_gap =
      written_.empty() || written_.begin()->first > 0 ? 0 : written_.begin()->second;
  if (first_gap < header_.data_bytes) {
    const auto holder =
        std::find_if(header_.tensors.begin(), header_.tensors.end(),
                     [first_gap](const TensorEntry& tensor) { return tensor.end > first_gap; });
    fail(ErrorCode::invalid_argument, kOp, shown_file(file_->path()), ": ",
         shown_tensor(holder->name), " was not written from byte ", first_gap - holder->begin,
         " on; expected all ", holder->nbytes(), " bytes before finish()");
  }
  check_is_no_source();
  file_->commit();
  finished_ = true;
}

}  // namespace octavo::safetensors
