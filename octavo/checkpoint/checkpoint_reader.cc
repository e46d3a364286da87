// Opens a checkpoint: lists its files, reads their headers and checks them against the index.
#include "octavo/checkpoint/checkpoint_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/gguf/gguf_file.h"
#include "octavo/checkpoint/shard_index.h"
#include "octavo/checkpoint/small_file_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "checkpoint";
constexpr std::string_view kWeights = ".safetensors", kIndex = ".safetensors.index.json";
constexpr std::string_view kUsualIndex = "model.safetensors.index.json",
                           kUsualFile = "model.safetensors";
constexpr std::string_view kConfig = "config.json", kHfQuantConfig = "hf_quant_config.json";
// The index of the largest models has about 10 MB, their config a few KB.
constexpr std::uint64_t kMaxIndexBytes = 64U << 20, kMaxConfigBytes = 8U << 20;

// Weights in other file formats, and their indexes: not copied beside quantized weights.
constexpr std::array<std::string_view, 11> kOtherWeights{
    ".bin",  ".pt",        ".pth", ".gguf",          ".h5", ".msgpack", ".ckpt",
    ".onnx", ".onnx_data", ".npz", ".bin.index.json"};

bool is_other_weights(std::string_view name) {
  return std::any_of(kOtherWeights.begin(), kOtherWeights.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool contains(const std::vector<std::string>& sorted, std::string_view name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

// Names of the plain files (links followed) in a folder, sorted.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) names.push_back(at->path().filename().string());
  }
  if (error)
    fail(ErrorCode::io, kOp, "could not list '", shown(folder, 200), "': ", error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < 4; ++i)
    out += text(i > 0 ? ", " : "", "'", shown(names[i], 80), "'");
  return names.size() > 4 ? out + ", ..." : out;
}

// A checkpoint nested in a checkpoint, such as an output folder or an unfinished one.
bool is_another_model(const std::string& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder + "/octavo-progress.json", ignored)) return true;
  const std::string config = text(folder, "/", kConfig);
  if (!std::filesystem::is_regular_file(config, ignored)) return false;
  try {
    const Json words = parse_json(read_small_file(config, kMaxConfigBytes), kConfig);
    return words.has("architectures") || words.has("model_type") || words.has("octavo");
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path)
    : path_(path), config_(std::make_shared<Json>()), hf_quant_config_(config_) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    fail(ErrorCode::io, kOp, "could not open '", shown(path, 200), "': ", std::strerror(errno),
         "; expected a folder with a model, or a .safetensors or .gguf file");
  is_folder_ = S_ISDIR(status.st_mode);
  if (is_folder_) {
    open_folder();
  } else if (path.ends_with(".gguf") || gguf::is_gguf(path)) {
    open_gguf();
  } else {
    files_.emplace_back(path);
    take_tensors(nullptr);
  }
}

void CheckpointReader::open_gguf() {
  gguf_ = std::make_shared<const gguf::File>(path_);
  files_.emplace_back(path_, gguf_);
  take_tensors(nullptr);
  config_ = std::make_shared<Json>(gguf_->config());
  other_files_ = gguf_->made_files();
  notes_ = gguf_->notes();
}

void CheckpointReader::open_folder() {
  const std::vector<std::string> names = files_in(path_);
  std::vector<std::string> weights, indexes;
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    if (name.ends_with(kWeights)) weights.push_back(name);
    if (name.ends_with(kIndex)) indexes.push_back(name);
  }
  if (contains(indexes, kUsualIndex)) indexes = {std::string(kUsualIndex)};
  if (indexes.size() > 1)
    fail(ErrorCode::invalid_argument, kOp, "'", shown(path_, 200), "' has several indexes (",
         list_of(indexes), "); expected one; give a folder with one model, or a file");
  std::optional<ShardIndex> index;
  std::vector<std::string> used;
  if (!indexes.empty()) {
    index_name_ = indexes.front();
    index =
        parse_shard_index(read_small_file(path_ + "/" + index_name_, kMaxIndexBytes), index_name_);
    used = index->files;
    if (contains(weights, kUsualFile) && !contains(used, kUsualFile))
      fail(ErrorCode::invalid_argument, kOp, "'", shown(path_, 200), "' has ", kUsualFile, " and ",
           shown(index_name_, 80),
           ", which does not name it: loaders differ in which they take; remove one");
    for (const std::string& name : used)
      if (!contains(names, name))
        fail(ErrorCode::io, kOp, "'", shown(index_name_, 80), "' names '", shown(name, 80),
             "', which is not in '", shown(path_, 200), "'; get all files of the model");
    check_no_shard_is_left_out(used, weights, index_name_);
  } else if (contains(weights, kUsualFile)) {
    used = {std::string(kUsualFile)};
  } else if (weights.size() == 1) {
    used = weights;
    check_no_shard_is_left_out(used, weights, used.front());
  } else {
    fail(weights.empty() ? ErrorCode::io : ErrorCode::invalid_argument, kOp, "'", shown(path_, 200),
         weights.empty() ? "' has no .safetensors file" : "' has several: ", list_of(weights),
         weights.empty() ? "; expected a model" : ", and no index; give it one, or give a file");
  }
  for (const std::string& name : used) files_.emplace_back(path_ + "/" + name);
  take_tensors(index ? &*index : nullptr);
  for (const std::string& name : names) {
    if (name == kConfig || name == kHfQuantConfig || name.ends_with(kIndex) ||
        contains(used, name) || name.ends_with(".octavo-tmp"))
      continue;
    if (name.ends_with(kWeights) || is_other_weights(name)) {
      if (name.ends_with(kWeights) && !name.starts_with('.')) unread_files_.push_back(name);
      notes_.push_back(text("'", shown(name, 80), "' holds other weights and is left out"));
      continue;
    }
    other_files_.push_back(name);
  }
  const auto read_config = [&](std::string_view name) {
    const std::string file = text(path_, "/", name);
    if (!contains(names, name)) return Json();
    try {
      const std::string content = read_small_file(file, kMaxConfigBytes);
      check(content.find_first_not_of(" \t\r\n") != std::string::npos, ErrorCode::invalid_argument,
            kOp, name, " is empty; expected {...} with what the model is; get the file anew");
      Json read = parse_json(content, name);
      check(read.is_object(), ErrorCode::invalid_argument, kOp, name,
            " holds no JSON object; expected {...} with what the model is; get the file anew");
      return read;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) throw;
      fail(error.code(), kOp, "'", shown(path_, 200), "': ", reason_of(error));
    }
  };
  find_in_subfolders();
  config_ = std::make_shared<Json>(read_config(kConfig));
  hf_quant_config_ = std::make_shared<Json>(read_config(kHfQuantConfig));
}

std::string CheckpointReader::config_text() const { return config_->dump(); }

std::string CheckpointReader::made_file(const std::string& name) const {
  return gguf_->made_file(name);
}

// Submodules in subfolders: 1_Pooling/config.json, 2_Dense/model.safetensors. A folder with weights
// and a config is a module; weights without a config are another format of the model.
void CheckpointReader::find_in_subfolders() {
  constexpr int kMaxDepth = 4;
  constexpr std::size_t kMaxFiles = 10'000;
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  std::size_t links = 0, seen = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(path_, error), end;
       !error && at != end && seen < kMaxFiles; at.increment(error)) {
    ++seen;
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    const bool hidden = name.starts_with('.') || name == "__pycache__";
    if (at->is_directory(ignored) &&
        (hidden || at.depth() + 1 >= kMaxDepth || at->is_symlink(ignored)))
      at.disable_recursion_pending();
    if (at->is_directory(ignored) && is_another_model(at->path().string())) {
      notes_.push_back(text("'", shown(name, 80), "' is a model of its own and is left out"));
      at.disable_recursion_pending();
    }
    if (at.depth() == 0 || hidden) continue;
    if (at->is_symlink(ignored)) {
      ++links;
    } else if (at->is_regular_file(ignored)) {
      found.push_back(fs::path(at->path()).lexically_relative(path_).generic_string());
    }
  }
  std::sort(found.begin(), found.end());
  std::size_t weights = 0;
  for (std::string& name : found) {
    const std::string config = name.substr(0, name.rfind('/') + 1) + std::string(kConfig);
    const bool module = name.ends_with(kWeights) && contains(found, config);
    if (!module && (name.ends_with(kWeights) || is_other_weights(name))) {
      ++weights;
    } else {
      other_files_.push_back(name);
    }
  }
  if (weights > 0)
    notes_.push_back(text(weights, " files of other weights in subfolders are left out"));
  if (links > 0)
    notes_.push_back(text(links, " links in subfolders are left out: they are not followed"));
  if (seen >= kMaxFiles)
    notes_.push_back(text("subfolders have more than ", kMaxFiles, " files; the rest is left out"));
}

void CheckpointReader::take_tensors(const ShardIndex* index) {
  for (std::size_t file = 0; file < files_.size(); ++file)
    for (const safetensors::TensorEntry& entry : files_[file].header().tensors)
      tensors_.push_back({file, &entry});
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.name() != b.name() ? a.name() < b.name() : a.file < b.file;
  });
  for (std::size_t i = 1; i < tensors_.size(); ++i)
    if (tensors_[i].name() == tensors_[i - 1].name())
      fail(ErrorCode::invalid_argument, kOp, "tensor '", shown(tensors_[i].name(), 120),
           "' is in '", shown(files_[tensors_[i - 1].file].path(), 200), "' and in '",
           shown(files_[tensors_[i].file].path(), 200), "'; expected it once");
  if (index == nullptr) return;
  for (const auto& [name, file] : index->tensors) {
    const StoredTensor* const found = find(name);
    if (found == nullptr || found->file != file)
      fail(ErrorCode::invalid_argument, kOp, "'", shown(index_name_, 80), "' says that tensor '",
           shown(name, 120), "' is in '", shown(index->files[file], 80), "', but it is ",
           found == nullptr ? "nowhere" : "elsewhere", "; the index is not of these files");
  }
  // Every name of the index was found, and both lists are sorted.
  auto next = index->tensors.begin();
  for (const StoredTensor& tensor : tensors_) {
    if (next != index->tensors.end() && next->first == tensor.name())
      ++next;
    else
      not_in_index_.push_back(tensor.name());
  }
  if (!not_in_index_.empty())
    notes_.push_back(text("'", shown(index_name_, 80), "' leaves out ", not_in_index_.size(),
                          not_in_index_.size() == 1 ? " tensor" : " tensors", " of its files"));
  if (index->total_size >= 0 && static_cast<std::uint64_t>(index->total_size) != nbytes())
    notes_.push_back(text("'", shown(index_name_, 80), "' says total_size ", index->total_size,
                          ", the tensors have ", nbytes(), " bytes"));
}

const StoredTensor* CheckpointReader::find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name() < wanted; });
  return at != tensors_.end() && at->name() == name ? &*at : nullptr;
}

const StoredTensor& CheckpointReader::at(std::string_view name) const {
  const StoredTensor* const found = find(name);
  if (found == nullptr)
    fail(ErrorCode::invalid_argument, kOp, "'", shown(path_, 200), "' has no tensor '",
         shown(name, 120), "'; it has ", tensors_.size(), " others");
  return *found;
}

std::uint64_t CheckpointReader::nbytes() const {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : tensors_) bytes += bytes_in_file(tensor);
  return bytes;
}

std::string_view CheckpointReader::type_in_file(const StoredTensor& tensor) const {
  return gguf_ != nullptr ? gguf_->stored(tensor.name()).type->name
                          : safetensors::stored_name(tensor.entry->type);
}

bool CheckpointReader::is_in_blocks(const StoredTensor& tensor) const {
  return gguf_ != nullptr && gguf_->stored(tensor.name()).type->is_block();
}

std::uint64_t CheckpointReader::bytes_in_file(const StoredTensor& tensor) const {
  return gguf_ != nullptr ? gguf_->stored(tensor.name()).nbytes : tensor.nbytes();
}

void CheckpointReader::read(const StoredTensor& tensor, std::uint64_t offset,
                            std::span<std::byte> into) const {
  files_[tensor.file].read(*tensor.entry, offset, into);
}

}  // namespace octavo
