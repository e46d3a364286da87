#include <algorithm>
#include <array>
#include <cerrno>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/checkpoint/folder_guard_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "checkpoint";

constexpr std::string_view kSafetensors = ".safetensors";
// Weights, and indexes of those in other file formats: not copied beside quantized weights.
constexpr std::array<std::string_view, 12> kWeights{
    kSafetensors, ".bin",  ".pt",   ".pth",       ".gguf", ".h5",
    ".msgpack",   ".ckpt", ".onnx", ".onnx_data", ".npz",  ".bin.index.json"};

}  // namespace

bool is_weights_name(std::string_view name) {
  return std::any_of(kWeights.begin(), kWeights.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool is_module_file(const ModelFolder& folder, std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash != std::string_view::npos && name.ends_with(kSafetensors) &&
         std::binary_search(folder.below.begin(), folder.below.end(),
                            text(name.substr(0, slash), "/config.json"));
}

FolderGuard::FolderGuard(const std::string& path, OtherFiles others)
    : path_(path),
      others_(others),
      folder_(list_model_folder(path, others == OtherFiles::copied_with_links)) {}

void FolderGuard::check_read(const std::string& name) const {
  const std::string file = text(path_, "/", name);
  if (const auto at = folder_.unreadable.find(name); at != folder_.unreadable.end())
    fail_on_file(at->second.number, file, kOp, "'", shown(file, 200), "' ", at->second.why,
                 "; get the file anew");
  if (const auto at = folder_.special.find(name); at != folder_.special.end())
    fail_on_file(EINVAL, file, kOp, "'", shown(file, 200), "' is ", at->second,
                 "; expected a plain file; get the file anew");
  refuse_outside(name, "read");
}

void FolderGuard::refuse_outside(const std::string& name, std::string_view use) const {
  const auto at = folder_.outside.find(name);
  if (others_ != OtherFiles::copied || at == folder_.outside.end()) return;
  const std::string file = text(path_, "/", name);
  fail_on_file(ELOOP, file, kOp, "'", shown(file, 200), "' is a link to '",
               shown(at->second.target, 200), "', outside of '", shown(folder_.inside, 200),
               "', and would be ", use,
               "; expected links that stay inside; put a copy in its place, or follow it (option "
               "follow_links)");
}

std::vector<std::string> FolderGuard::check_copies(const std::vector<std::string>& names) const {
  std::vector<std::string> notes;
  for (const auto& [name, kind] : folder_.special)
    notes.push_back(text("'", shown(name, 80), "' is ", kind, " and is left out"));
  for (const auto& [name, about] : folder_.unreadable) {
    const bool copied = !is_weights_name(name) || is_module_file(folder_, name);
    if (others_ == OtherFiles::unused || !copied) {
      notes.push_back(text("'", shown(name, 80), "' ", about.why, ", and is left out"));
      continue;
    }
    const std::string file = text(path_, "/", name);
    fail_on_file(about.number, file, kOp, "'", shown(file, 200), "' ", about.why,
                 ", and would be copied; get it anew, or remove it");
  }
  for (const std::string& name : names) refuse_outside(name, "copied");
  for (const auto& [name, link] : folder_.outside)
    if (link.folder) refuse_outside(name, "copied");
  return notes;
}

}  // namespace octavo
