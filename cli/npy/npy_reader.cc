#include "cli/npy/npy_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "cli/usage.h"
#include "octavo/base/error.h"
#include "octavo/base/file/file_id.h"

namespace octavo::cli {

NpyReader::NpyReader(std::string op, const std::string& path) : op_(std::move(op)), path_(path) {
  if (path == "-") {
    throw UsageError(text('[', op_,
                          "] got '-' for the input; give /dev/stdin to read a pipe, or ./- ",
                          "if '-' is the name"));
  }
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0)
    fail(ErrorCode::io, op_, "could not open '", path_, "': ", std::strerror(errno));
  try {
    std::vector<std::byte> start(kNpyPreamble);
    start.resize(read_some(start));
    const std::size_t offset = npy_data_offset(start), have = start.size();
    if (offset > have) {
      start.resize(offset);
      start.resize(have + read_some(std::span(start).subspan(have)));
    }
    header_ = parse_npy_header(start);
    data_bytes_ = element_count(header_) * header_.item_bytes;

    struct stat status {};
    if (fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) {
      const std::int64_t there = status.st_size - static_cast<std::int64_t>(offset);
      if (there < data_bytes_) {
        throw NpyProblem(text("is cut short: shape ", shape_text(header_.shape), " of ",
                              descr_of(header_), " needs ", data_bytes_, " bytes of data, and ",
                              there, " are there"));
      }
      trailing_bytes_ = there - data_bytes_;
      (void)posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
  } catch (const NpyProblem& problem) {
    close(descriptor_);
    fail_file(problem.what());
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

NpyReader::~NpyReader() { close(descriptor_); }

void NpyReader::fail_file(const std::string& problem) const {
  fail(ErrorCode::io, op_, "'", path_, "' ", problem);
}

bool NpyReader::is_same_file(const std::string& path) const {
  const std::optional<FileId> mine = file_id(descriptor_);
  return mine && mine == file_id(path);
}

std::size_t NpyReader::read_some(std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(descriptor_, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorCode::io, op_, "could not read '", path_, "': ", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void NpyReader::read(std::span<std::byte> bytes) {
  if (read_some(bytes) != bytes.size())
    fail_file("ends before its data does: it was cut while it was read");
}

}  // namespace octavo::cli
