// Walks a model's folder, and judges every symbolic link in it.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/model_folder_internal.h"
#include "octavo/checkpoint/small_file_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOp = "checkpoint";
constexpr std::size_t kMaxDepth = 16, kMaxFiles = 10'000;
constexpr std::uint64_t kMaxConfigBytes = 8U << 20;

bool is_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// models--X of models--X/snapshots/REVISION and of what is below that; otherwise the folder itself.
fs::path link_border(const fs::path& folder) {
  std::error_code ignored;
  for (fs::path at = folder.parent_path(); at.has_relative_path(); at = at.parent_path())
    if (at.filename() == "snapshots" && fs::is_directory(at.parent_path() / "blobs", ignored))
      return at.parent_path();
  return folder;
}

// A checkpoint nested in a checkpoint, such as an output folder or an unfinished one.
bool is_another_model(const fs::path& folder) {
  std::error_code ignored;
  for (const char* const unfinished : {"octavo-progress.json", "octavo-work"})
    if (fs::exists(folder / unfinished, ignored)) return true;
  const fs::path config = folder / "config.json";
  if (!fs::is_regular_file(config, ignored)) return false;
  try {
    const Json words = parse_json(read_small_file(config.string(), kMaxConfigBytes), "config.json");
    return words.has("architectures") || words.has("model_type") || words.has("octavo");
  } catch (const Error&) {
    return false;
  }
}

std::string_view kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

class Walk {
 public:
  Walk(const std::string& folder, bool leave) : leave_(leave) {
    std::error_code error;
    const fs::path root = fs::canonical(folder, error);
    border_ = link_border(root);
    found_.inside = border_.string();
    chain_.push_back(root);
    if (!error) error = list(folder, "");
    if (error)
      fail_on_file(error.value(), folder, kOp, "could not list '", shown(folder, 200),
                   "': ", error.message());
    if (seen_below_ > kMaxFiles)
      note("subfolders have more than ", kMaxFiles, " files; the rest is left out");
    std::sort(found_.files.begin(), found_.files.end());
    std::sort(found_.below.begin(), found_.below.end());
  }

  ModelFolder take() { return std::move(found_); }

 private:
  template <typename... Parts>
  void note(const Parts&... parts) {
    found_.notes.push_back(text(parts...));
  }

  std::error_code list(const fs::path& folder, const std::string& prefix) {
    std::error_code error;
    std::vector<fs::path> names;  // sorted: notes come in the same order everywhere
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      if (!prefix.empty() && ++seen_below_ > kMaxFiles) break;
      names.push_back(at->path().filename());
    }
    std::sort(names.begin(), names.end());
    for (const fs::path& name : names)
      look_at(folder / name, prefix + name.string(), prefix.empty());
    return error;
  }

  // `name` is the path below the model's folder.
  void look_at(const fs::path& path, const std::string& name, bool top) {
    const std::string own = path.filename().string();
    const bool hidden = own.starts_with('.') || own == "__pycache__";
    if (hidden && !top) return;
    std::error_code ignored;
    const bool link = fs::is_symlink(fs::symlink_status(path, ignored));
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
      // Hidden ones are no part of a model: an editor's lock is a link to nothing.
      if (!hidden) found_.unreadable.emplace(name, why_unreadable(path, link, errno));
      return;
    }
    const bool folder = S_ISDIR(status.st_mode);
    if (folder && hidden) return;
    if (folder && is_another_model(path))
      return note("'", shown(name, 80), "' is a model of its own and is left out");
    const fs::path place = fs::canonical(path, ignored);
    const bool leaves = link && !is_in(place, border_);
    if (leaves) {
      const std::string target = fs::read_symlink(path, ignored).string();
      found_.outside.emplace(name, ModelFolder::OutsideLink{target, folder});
    }
    if (folder) {
      if (!leaves || leave_) go_into(path, name, place);
    } else if (S_ISREG(status.st_mode)) {
      (top ? found_.files : found_.below).push_back(name);
    } else if (!hidden) {
      found_.special.emplace(name, kind_of(status.st_mode));
    }
  }

  void go_into(const fs::path& path, const std::string& name, const fs::path& place) {
    if (std::any_of(chain_.begin(), chain_.end(),
                    [&](const fs::path& one) { return is_in(one, place); }))
      return note("'", shown(name, 80), "' is a link to a folder that holds it and is left out");
    if (chain_.size() > kMaxDepth)
      return note("'", shown(name, 200), "' is more than ", kMaxDepth,
                  " folders deep and is left out");
    chain_.push_back(place);
    const std::error_code error = list(path, name + "/");
    chain_.pop_back();
    if (error)
      found_.unreadable.emplace(
          name, ModelFolder::Unreadable{
                    error.value(), text("is a folder that cannot be listed: ", error.message())});
  }

  static ModelFolder::Unreadable why_unreadable(const fs::path& path, bool link, int number) {
    std::error_code ignored;
    const std::string target = link ? fs::read_symlink(path, ignored).string() : "";
    if (link && number == ENOENT)
      return {number, text("is a link to '", shown(target, 200), "', which is not there")};
    if (link && number == ELOOP)
      return {number, text("is a link to '", shown(target, 200), "', which leads back to it")};
    return {number,
            text(link ? text("is a link to '", shown(target, 200), "' that") : "",
                 link ? " cannot be followed: " : "cannot be looked at: ", std::strerror(number))};
  }

  bool leave_;
  fs::path border_;
  std::vector<fs::path> chain_;  // the folders from the model's to this one, without links
  std::size_t seen_below_ = 0;
  ModelFolder found_;
};

}  // namespace

ModelFolder list_model_folder(const std::string& folder, bool leave) {
  return Walk(folder, leave).take();
}

}  // namespace octavo
