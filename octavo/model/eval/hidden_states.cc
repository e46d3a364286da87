#include "octavo/model/eval/hidden_states_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/hash/row_hash_internal.h"

namespace octavo::eval {
namespace {

constexpr std::int64_t kSavedRows = 1024;  // copied at a time

[[noreturn]] void fail_on_spill(const std::string& op, const std::string& folder,
                                std::string_view doing, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  fail_on_file(error, folder, op, "could not ", doing, " a temporary file in '", shown(folder, 400),
               "': ", std::strerror(error),
               full
                   ? "; it holds the hidden states: free space, name another folder (--temporary), "
                     "or allow more memory (--max-memory)"
                   : "; name another folder (--temporary)");
}

// A file without a name. File systems that have no O_TMPFILE get one whose name is taken away at
// once.
int open_nameless(const std::string& op, const std::string& folder) {
  int descriptor = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0) return descriptor;
  std::string name = folder + "/.octavo-hidden-XXXXXX";
  descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) fail_on_spill(op, folder, "create", errno);
  unlink(name.c_str());
  return descriptor;
}

// All bytes at a place of a file, whichever way `move` goes (pread, pwrite).
template <typename Move, typename Byte>
int move_all(Move&& move, int descriptor, Byte* bytes, std::size_t count, std::int64_t at) {
  while (count > 0) {
    const ssize_t moved = move(descriptor, bytes, count, at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return moved < 0 ? errno : EIO;
    bytes += moved;
    count -= static_cast<std::size_t>(moved);
    at += moved;
  }
  return 0;
}

}  // namespace

HiddenStates::HiddenStates(std::string op, std::int64_t rows, std::int64_t hidden,
                           const std::string& folder)
    : op_(std::move(op)), folder_(folder), rows_(rows), hidden_(hidden) {
  if (folder.empty()) {
    memory_ = Tensor::values({rows, hidden}, DType::f32);
    return;
  }
  descriptor_ = std::make_unique<const Descriptor>(open_nameless(op_, folder));
  // Room is taken now: a full disk is better found before the work than in the middle of it.
  if (fallocate(descriptor_->number(), 0, 0, rows * row_bytes()) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
    fail_on_spill(op_, folder_, text("reserve ", rows * row_bytes(), " bytes for"), errno);
}

HiddenStates::~HiddenStates() = default;
HiddenStates::HiddenStates(HiddenStates&&) noexcept = default;
HiddenStates& HiddenStates::operator=(HiddenStates&&) noexcept = default;

std::int64_t HiddenStates::row_bytes() const {
  return hidden_ * static_cast<std::int64_t>(sizeof(float));
}

View HiddenStates::fetch(std::int64_t first, std::int64_t count, Tensor& buffer) const {
  if (is_in_memory())
    return value_view(memory_.span<float>().data() + first * hidden_, DType::f32, {count, hidden_});
  if (buffer.shape().rank() != 2 || buffer.shape()[0] < count || buffer.shape()[1] != hidden_)
    buffer = Tensor::values({count, hidden_}, DType::f32);
  float* const data = buffer.span<float>().data();
  const int error = move_all(pread, descriptor_->number(), reinterpret_cast<std::byte*>(data),
                             static_cast<std::size_t>(count * row_bytes()), first * row_bytes());
  if (error != 0) fail_on_spill(op_, folder_, "read", error);
  return value_view(data, DType::f32, {count, hidden_});
}

void HiddenStates::keep(std::int64_t first, const View& rows) {
  if (is_in_memory()) return;
  const int error = move_all(
      pwrite, descriptor_->number(), static_cast<const std::byte*>(rows.data),
      static_cast<std::size_t>(element_count(rows.shape)) * sizeof(float), first * row_bytes());
  if (error != 0) fail_on_spill(op_, folder_, "write", error);
}

std::uint64_t HiddenStates::save(const std::string& path) const {
  WholeFile file(op_, path, 0600);
  file.reserve(rows_ * row_bytes());
  Tensor buffer;
  std::uint64_t hash = 0;
  for (std::int64_t first = 0; first < rows_; first += kSavedRows) {
    const std::int64_t count = std::min(kSavedRows, rows_ - first);
    const std::span<const std::byte> bytes(
        static_cast<const std::byte*>(fetch(first, count, buffer).data),
        static_cast<std::size_t>(count * row_bytes()));
    hash += content_hash(bytes, row_bytes(), first);
    file.write(bytes);
  }
  file.commit();
  return hash;
}

bool HiddenStates::load(const std::string& path, std::uint64_t hash) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.number() < 0 || fstat(file.number(), &status) != 0 ||
      status.st_size != rows_ * row_bytes())
    return false;
  Tensor buffer = Tensor::values({std::min(kSavedRows, rows_), hidden_}, DType::f32);
  std::uint64_t sum = 0;
  for (std::int64_t first = 0; first < rows_; first += kSavedRows) {
    const std::int64_t count = std::min(kSavedRows, rows_ - first);
    View rows = is_in_memory() ? fetch(first, count, buffer)
                               : value_view(buffer.view().data, DType::f32, {count, hidden_});
    const auto size = static_cast<std::size_t>(count * row_bytes());
    auto* const data = static_cast<std::byte*>(rows.data);
    if (move_all(pread, file.number(), data, size, first * row_bytes()) != 0) return false;
    sum += content_hash({data, size}, row_bytes(), first);
    keep(first, rows);
  }
  return sum == hash;
}

}  // namespace octavo::eval
