// Opens a checkpoint: lists its files, reads their headers and checks them against the index.
#include "octavo/checkpoint/checkpoint_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/temporary_name_internal.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/deleted_shards_internal.h"
#include "octavo/checkpoint/folder_guard_internal.h"
#include "octavo/checkpoint/gguf/gguf_file.h"
#include "octavo/checkpoint/shard_index.h"
#include "octavo/checkpoint/small_file_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "checkpoint";
constexpr std::string_view kWeights = ".safetensors", kIndex = ".safetensors.index.json";
constexpr std::string_view kUsualIndex = "model.safetensors.index.json",
                           kUsualFile = "model.safetensors";
constexpr std::string_view kGguf = ".gguf";
constexpr std::string_view kConfig = "config.json", kHfQuantConfig = "hf_quant_config.json";
// The index of the largest models has about 10 MB, their config a few KB.
constexpr std::uint64_t kMaxIndexBytes = 64U << 20, kMaxConfigBytes = 8U << 20;

bool contains(const std::vector<std::string>& sorted, std::string_view name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < 4; ++i)
    out += text(i > 0 ? ", " : "", "'", shown(names[i], 80), "'");
  return names.size() > 4 ? out + ", ..." : out;
}

// The one file of weights in a folder without an index. Any of them might be the model.
std::string only_weights(const std::string& path, const FolderGuard& guard,
                         const std::vector<std::string>& weights) {
  const ModelFolder& folder = guard.folder();
  const auto check_read = [&](const std::string& name) {
    if (name.ends_with(kWeights) && name.find('/') == std::string::npos) guard.check_read(name);
  };
  for (const auto& [name, about] : folder.unreadable) check_read(name);
  for (const auto& [name, kind] : folder.special) check_read(name);
  if (contains(weights, kUsualFile)) return std::string(kUsualFile);
  if (weights.size() > 1)
    fail(ErrorCode::invalid_argument, kOp, "'", shown(path, 200),
         "' has several: ", list_of(weights), ", and no index; give it one, or give a file");
  if (weights.empty()) {
    const auto gguf = std::find_if(folder.files.begin(), folder.files.end(),
                                   [](const std::string& name) { return name.ends_with(kGguf); });
    fail_on_file(ENOENT, path, kOp, "'", shown(path, 200), "' has no .safetensors file",
                 gguf == folder.files.end()
                     ? "; expected a model"
                     : text(", but '", shown(*gguf, 80),
                            "', which is GGUF; give that file, not its folder"));
  }
  check_no_shard_is_left_out(weights, weights, weights.front());
  return weights.front();
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path, OtherFiles others,
                                   std::string deleted_shards)
    : path_(path),
      deleted_shards_(std::move(deleted_shards)),
      config_(std::make_shared<Json>()),
      hf_quant_config_(config_) {
  struct stat status {};
  const int error = stat(path.c_str(), &status) == 0 ? 0 : errno;
  if (error != 0 && (error != ENOENT || !stat_shard(path, deleted_shards_, status)))
    fail_on_file(error, path, kOp, "could not open '", shown(path, 200),
                 "': ", std::strerror(error),
                 "; expected a folder with a model, or a .safetensors or .gguf file");
  is_folder_ = S_ISDIR(status.st_mode);
  if (error != 0) {
    files_.push_back(open_deleted_shard(path, deleted_shards_));
    take_tensors(nullptr);
  } else if (is_folder_) {
    open_folder(FolderGuard(path, others));
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

void CheckpointReader::open_folder(const FolderGuard& guard) {
  const std::vector<std::string>& names = guard.folder().files;
  for (const std::string_view name : {kConfig, kHfQuantConfig, kUsualIndex})
    guard.check_read(std::string(name));
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
  const auto is_deleted = [&](const std::string& name) {
    struct stat status {};
    const std::string path = path_ + "/" + name;
    return !contains(names, name) && lstat(path.c_str(), &status) != 0 &&
           stat_shard(path, deleted_shards_, status);
  };
  if (!indexes.empty()) {
    index_name_ = indexes.front();
    guard.check_read(index_name_);
    index =
        parse_shard_index(read_small_file(path_ + "/" + index_name_, kMaxIndexBytes), index_name_);
    used = index->files;
    if (contains(weights, kUsualFile) && !contains(used, kUsualFile))
      fail(ErrorCode::invalid_argument, kOp, "'", shown(path_, 200), "' has ", kUsualFile, " and ",
           shown(index_name_, 80),
           ", which does not name it: loaders differ in which they take; remove one");
    for (const std::string& name : used) {
      guard.check_read(name);
      if (!contains(names, name) && !is_deleted(name))
        fail_on_file(ENOENT, text(path_, "/", name), kOp, "'", shown(index_name_, 80), "' names '",
                     shown(name, 80), "', which is not in '", shown(path_, 200),
                     "'; get all files of the model");
    }
    check_no_shard_is_left_out(used, weights, index_name_);
  } else {
    const std::string deleted = weights.empty() ? only_deleted_shard(deleted_shards_) : "";
    used = {deleted.empty() ? only_weights(path_, guard, weights) : deleted};
    guard.check_read(used.front());
  }
  for (const std::string& name : used) {
    std::string shard = path_ + "/" + name;
    if (is_deleted(name))
      files_.push_back(open_deleted_shard(shard, deleted_shards_));
    else
      files_.emplace_back(shard);
  }
  take_tensors(index ? &*index : nullptr);
  for (const std::string& name : names) {
    if (name == kConfig || name == kHfQuantConfig || name.ends_with(kIndex) ||
        contains(used, name) || is_temporary_name(name))
      continue;
    if (is_weights_name(name)) {
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
  take_subfolders(guard.folder());
  const std::vector<std::string> left_out = guard.check_copies(other_files_);
  notes_.insert(notes_.end(), left_out.begin(), left_out.end());
  config_ = std::make_shared<Json>(read_config(kConfig));
  hf_quant_config_ = std::make_shared<Json>(read_config(kHfQuantConfig));
}

std::string CheckpointReader::config_text() const { return config_->dump(); }

std::string CheckpointReader::made_file(const std::string& name) const {
  return gguf_->made_file(name);
}

// Submodules in subfolders: 1_Pooling/config.json, 2_Dense/model.safetensors.
void CheckpointReader::take_subfolders(const ModelFolder& folder) {
  std::size_t weights = 0;
  for (const std::string& name : folder.below) {
    if (is_weights_name(name) && !is_module_file(folder, name)) {
      ++weights;
    } else {
      other_files_.push_back(name);
    }
  }
  notes_.insert(notes_.end(), folder.notes.begin(), folder.notes.end());
  if (weights > 0)
    notes_.push_back(text(counted(weights, "file"), " of other weights in subfolders ",
                          plural(static_cast<std::int64_t>(weights), "is", "are"), " left out"));
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
    notes_.push_back(text("'", shown(index_name_, 80), "' leaves out ",
                          counted(not_in_index_.size(), "tensor"), " of its files"));
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
         shown(name, 120), "'; it has ", counted(tensors_.size(), "other"));
  return *found;
}

CheckpointReader CheckpointReader::with_tensors(
    std::vector<std::shared_ptr<const safetensors::TensorSource>> files, Json config,
    std::vector<std::string> notes) const {
  CheckpointReader out;
  out.path_ = path_;
  out.is_folder_ = is_folder_;
  out.index_name_ = index_name_;
  out.deleted_shards_ = deleted_shards_;
  out.other_files_ = other_files_;
  out.notes_ = notes_;
  out.notes_.insert(out.notes_.end(), notes.begin(), notes.end());
  out.bytes_in_files_ = nbytes();
  for (std::size_t i = 0; i < files.size(); ++i)
    out.files_.emplace_back(files_[i].path(), std::move(files[i]));
  out.take_tensors(nullptr);
  out.config_ = std::make_shared<Json>(std::move(config));
  out.hf_quant_config_ = std::make_shared<Json>();
  return out;
}

std::vector<std::size_t> CheckpointReader::shards_of(const StoredTensor& tensor) const {
  std::vector<std::size_t> out = files_[tensor.file].files_of(*tensor.entry);
  if (out.empty()) out.push_back(tensor.file);
  return out;
}

std::int64_t CheckpointReader::rows_together(const StoredTensor& tensor) const {
  return files_[tensor.file].rows_together(*tensor.entry);
}

std::uint64_t CheckpointReader::nbytes() const {
  if (bytes_in_files_ > 0) return bytes_in_files_;
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
