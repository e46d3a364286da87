#include "cli/text/input_name.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cli/text/suggest.h"
#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"

namespace octavo::cli {
namespace {

// " Did you mean 'model'?", of the names in the folder that the path is in.
std::string nearest_beside(const std::string& path) {
  constexpr std::size_t kMaxNames = 1000;
  namespace fs = std::filesystem;
  fs::path typed(path);
  if (!typed.has_filename()) typed = typed.parent_path();  // "model/"
  const fs::path folder = typed.has_parent_path() ? typed.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end;
       !error && at != end && names.size() < kMaxNames; at.increment(error))
    names.push_back(at->path().filename().string());
  const std::string name = nearest(typed.filename().string(), names);
  if (name.empty()) return "";
  return text(" Did you mean '", shown((typed.parent_path() / name).string()), "'?");
}

}  // namespace

void check_input(const std::string& op, const std::string& path, std::string_view expected) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return;
  const int number = errno;
  const std::string near = number == ENOENT ? nearest_beside(path) : "";
  fail_on_file(number, path, op, "could not open '", octavo::shown(path, 200),
               "': ", std::strerror(number), "; expected ", expected, near.empty() ? "" : ".",
               near);
}

void check_model(const std::string& op, const std::string& path) {
  check_input(op, path, "a model: a folder, a .safetensors or a .gguf file");
}

}  // namespace octavo::cli
