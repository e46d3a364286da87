#include "octavo/safetensors/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/safetensors/placement_internal.h"

namespace octavo::safetensors {
namespace {

// The size of a regular file; other files have no size to check a header against.
std::uint64_t plain_file_bytes(int descriptor, const std::string& path) {
  struct stat status {};
  const bool known = fstat(descriptor, &status) == 0;
  if (known && S_ISREG(status.st_mode)) return static_cast<std::uint64_t>(status.st_size);
  const bool folder = known && S_ISDIR(status.st_mode);
  fail_on_file(folder ? EISDIR : EINVAL, path, kOp, shown_file(path), " is a ",
               folder ? "folder" : "device or pipe",
               "; expected a plain file; give the name of a .safetensors file");
}

// Strides are products of sizes and must not overflow either, even for an empty tensor.
Shape checked_shape(const TensorEntry& tensor, std::string_view where) {
  std::array<std::int64_t, kMaxRank> sizes{};
  std::int64_t bytes = 8;  // size of the largest element
  bool fits = tensor.shape.size() <= kMaxRank;
  for (std::size_t i = 0; fits && i < tensor.shape.size(); ++i) {
    const std::uint64_t size = tensor.shape[i];
    fits = !__builtin_mul_overflow(bytes, std::max<std::uint64_t>(size, 1), &bytes);
    sizes[i] = static_cast<std::int64_t>(size);
  }
  if (!fits) {
    fail(ErrorCode::unsupported, kOp, where, " has shape ", shown_shape(tensor.shape),
         "; expected at most ", kMaxRank,
         " sizes with a product below 2^60; read its bytes instead");
  }
  return Shape(std::span<const std::int64_t>(sizes).first(tensor.shape.size()));
}

}  // namespace

FileReader::FileReader(const std::string& path, const ReadOptions& options) : path_(path) {
  // Non-blocking: opening a pipe by mistake would block until it has a writer.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    const int error = errno;
    fail_on_file(error, path, kOp, "could not open ", shown_file(path), ": ", std::strerror(error));
  }
  try {
    const std::uint64_t file_bytes = plain_file_bytes(descriptor_, path);
    std::array<std::byte, kLengthBytes> first_bytes{};
    const std::size_t available = std::min(file_bytes, kLengthBytes);
    read_file(0, std::span(first_bytes).first(available));
    const std::uint64_t length =
        read_header_length(std::span(first_bytes).first(available), file_bytes, path);
    std::string json(length, '\0');
    read_file(kLengthBytes, std::as_writable_bytes(std::span(json)));
    header_ = parse_header(json, file_bytes, path, options);
  } catch (...) {
    close_file();  // the destructor does not run when the constructor throws
    throw;
  }
}

TensorSource::~TensorSource() = default;

std::vector<std::size_t> TensorSource::files_of(const TensorEntry&) const { return {}; }

std::int64_t TensorSource::rows_together(const TensorEntry&) const { return 1; }

std::vector<std::size_t> FileReader::files_of(const TensorEntry& tensor) const {
  return source_ == nullptr ? std::vector<std::size_t>() : source_->files_of(tensor);
}

std::int64_t FileReader::rows_together(const TensorEntry& tensor) const {
  return source_ == nullptr ? 1 : source_->rows_together(tensor);
}

FileReader::FileReader(std::string path, std::shared_ptr<const TensorSource> source)
    : path_(std::move(path)), source_(std::move(source)), header_(source_->header()) {}

FileReader::~FileReader() { close_file(); }

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      source_(std::move(other.source_)),
      header_(std::move(other.header_)) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  if (this != &other) {
    close_file();
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    source_ = std::move(other.source_);
    header_ = std::move(other.header_);
  }
  return *this;
}

void FileReader::close_file() noexcept {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

const TensorEntry& FileReader::at(std::string_view name) const {
  const TensorEntry* const found = find(name);
  if (found == nullptr) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(path_), " has no ", shown_tensor(name),
         "; it has ", counted(header_.tensors.size(), "other"));
  }
  return *found;
}

void FileReader::read_file(std::uint64_t position, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = pread(descriptor_, into.data(), into.size(), static_cast<off_t>(position));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      fail_on_file(error, path_, kOp, "could not read ", shown_file(path_), ": ",
                   std::strerror(error));
    }
    if (got == 0) {
      fail_on_file(EIO, path_, kOp, shown_file(path_), " ends at byte ", position, "; expected ",
                   into.size(),
                   " more; it was changed while it was read, start again with a whole one");
    }
    position += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

void FileReader::read(const TensorEntry& tensor, std::uint64_t offset,
                      std::span<std::byte> into) const {
  if (tensor.end < tensor.begin || tensor.end > header_.data_bytes) {
    fail(ErrorCode::invalid_argument, kOp, shown_tensor(tensor.name), " is not of ",
         shown_file(path_), "; take it from this file's header");
  }
  if (offset > tensor.nbytes() || into.size() > tensor.nbytes() - offset) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(path_), ": ", shown_tensor(tensor.name),
         " has ", tensor.nbytes(), " bytes, but ", into.size(), " from byte ", offset,
         " on were asked for");
  }
  if (source_ != nullptr) return source_->read(tensor, offset, into);
  read_file(header_.data_begin + tensor.begin + offset, into);
}

Tensor FileReader::read_tensor(const TensorEntry& tensor) const {
  const std::string where = text(shown_file(path_), ": ", shown_tensor(tensor.name));
  const std::optional<ElementType> type = element_type(tensor.type);
  if (!type) {
    fail(ErrorCode::unsupported, kOp, where, " holds ", stored_name(tensor.type),
         "; expected floating point; read its bytes instead");
  }
  const Shape shape = checked_shape(tensor, where);
  // A file packs across rows, an octavo array begins each row on a byte.
  const std::int64_t bytes = dense_bytes(shape, type->dtype, type->format, type->packed);
  if (static_cast<std::uint64_t>(bytes) != tensor.nbytes()) {
    fail(ErrorCode::unsupported, kOp, where, " packs rows of shape ", shown_shape(tensor.shape),
         " across bytes; expected rows that end on a byte; read its bytes instead");
  }
  Tensor out = type->dtype == DType::code ? Tensor::codes(shape, type->format, type->packed)
                                          : Tensor::values(shape, type->dtype);
  read(tensor, 0, out.bytes());
  return out;
}

}  // namespace octavo::safetensors
