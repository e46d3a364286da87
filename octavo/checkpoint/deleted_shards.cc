#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/temporary_name_internal.h"
#include "octavo/checkpoint/deleted_shards_internal.h"
#include "octavo/safetensors/header_writer.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

// Tensors of up to this many bytes are kept with the header: planning reads them (shapes of packed
// weights, static scales, markers).
constexpr std::uint64_t kKeptTensorBytes = 1024;

std::string kept_path(const std::string& path, const std::string& folder) {
  return text(folder, "/", std::filesystem::path(path).filename().string());
}

class DeletedShard : public safetensors::TensorSource {
 public:
  DeletedShard(std::string path, const std::string& kept) : path_(std::move(path)), kept_(kept) {}

  [[nodiscard]] const safetensors::Header& header() const override { return kept_.header(); }
  void read(const safetensors::TensorEntry& tensor, std::uint64_t offset,
            std::span<std::byte> into) const override {
    if (into.empty()) return;
    if (tensor.nbytes() <= kKeptTensorBytes) return kept_.read(tensor, offset, into);
    fail_on_file(ENOENT, path_, kOp, "'", shown(tensor.name, 160), "' is needed again, and '",
                 shown(path_, 200),
                 "' was deleted as asked (option delete_source): what was made of it has changed "
                 "since; put that file back, or start again from a whole model");
  }

 private:
  std::string path_;
  safetensors::FileReader kept_;
};

// The bytes from `begin` on, to the same place of the other file.
void copy_bytes(int from, int to, std::uint64_t begin, std::uint64_t bytes) {
  std::vector<std::byte> content(bytes);
  const auto at = [&](std::uint64_t done) { return static_cast<off_t>(begin + done); };
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(from, content.data() + done, bytes - done, at(done));
    if (got <= 0) {
      errno = got == 0 ? EIO : errno;
      throw std::error_code(errno, std::generic_category());
    }
    done += static_cast<std::uint64_t>(got);
  }
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t put = pwrite(to, content.data() + done, bytes - done, at(done));
    if (put <= 0) throw std::error_code(errno, std::generic_category());
    done += static_cast<std::uint64_t>(put);
  }
}

}  // namespace

void keep_shard_header(const safetensors::FileReader& shard, const std::string& folder) {
  const std::string name = std::filesystem::path(shard.path()).filename().string();
  const std::string kept = kept_path(shard.path(), folder),
                    temporary = text(folder, "/", temporary_name(name));
  // Of the file: where weights are decoded, shard.header() is that of their values.
  const safetensors::Header header = safetensors::FileReader(shard.path()).header();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  try {
    const Descriptor from(open(shard.path().c_str(), O_RDONLY | O_CLOEXEC));
    const Descriptor to(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    const Descriptor in(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat status {};
    if (from.number() < 0 || to.number() < 0 || in.number() < 0 ||
        fstat(from.number(), &status) != 0)
      throw std::error_code(errno, std::generic_category());
    copy_bytes(from.number(), to.number(), 0, header.data_begin);
    for (const safetensors::TensorEntry& tensor : header.tensors)
      if (tensor.nbytes() <= kKeptTensorBytes)
        copy_bytes(from.number(), to.number(), header.data_begin + tensor.begin, tensor.nbytes());
    const std::array<timespec, 2> times{status.st_mtim, status.st_mtim};
    if (ftruncate(to.number(), status.st_size) != 0 || futimens(to.number(), times.data()) != 0 ||
        fsync(to.number()) != 0 || rename(temporary.c_str(), kept.c_str()) != 0 ||
        fsync(in.number()) != 0)
      throw std::error_code(errno, std::generic_category());
  } catch (const std::error_code& why) {
    unlink(temporary.c_str());
    fail_on_file(why.value(), kept, kOp, "could not keep the header of '", shown(shard.path(), 200),
                 "' in '", shown(folder, 200), "': ", why.message(), "; nothing more is deleted");
  }
}

safetensors::FileReader open_deleted_shard(const std::string& path, const std::string& folder) {
  return {path, std::make_shared<DeletedShard>(path, kept_path(path, folder))};
}

bool is_kept_shard(const std::string& path, const std::string& folder) {
  const std::string kept = kept_path(path, folder);
  struct stat now {
  }, then{};
  if (lstat(path.c_str(), &now) != 0 || lstat(kept.c_str(), &then) != 0 ||
      now.st_size != then.st_size || now.st_mtim.tv_sec != then.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != then.st_mtim.tv_nsec)
    return false;
  try {
    return safetensors::write_header(safetensors::FileReader(path).header()) ==
           safetensors::write_header(safetensors::FileReader(kept).header());
  } catch (const Error&) {
    return false;
  }
}

std::string only_deleted_shard(const std::string& folder) {
  std::string found;
  std::error_code ignored;
  if (folder.empty()) return found;
  for (std::filesystem::directory_iterator at(folder, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (is_temporary_name(name)) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

bool stat_shard(const std::string& path, const std::string& folder, struct stat& status) {
  return stat(path.c_str(), &status) == 0 || (errno == ENOENT && !folder.empty() &&
                                              stat(kept_path(path, folder).c_str(), &status) == 0);
}

}  // namespace octavo
