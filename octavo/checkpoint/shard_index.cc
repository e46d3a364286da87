// The index of shards, which is not believed.
#include "octavo/checkpoint/shard_index.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/base/json.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "checkpoint";

}  // namespace

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

ShardIndex parse_shard_index(std::string_view text, std::string_view file) {
  const Json document = parse_json(text, file);
  const Json& map = document["weight_map"];
  if (!map.is_object())
    fail(ErrorCode::invalid_argument, kOp, "'", shown(file),
         "' has no object weight_map, wanted one that names the file of every tensor");
  ShardIndex index;
  for (const auto& [tensor, value] : map.members()) {
    if (!value.is_string())
      fail(ErrorCode::invalid_argument, kOp, "'", shown(file), "' gives tensor '", shown(tensor),
           "' something that is no name of a file");
    const std::string_view name = value.string_or("");
    if (!is_plain_file_name(name))
      fail(ErrorCode::invalid_argument, kOp, "'", shown(file), "' puts tensor '", shown(tensor),
           "' into '", shown(name), "', wanted the plain name of a file in the same folder");
    index.files.emplace_back(name);
  }
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  for (const auto& [tensor, value] : map.members()) {
    const auto at = std::lower_bound(index.files.begin(), index.files.end(), value.string_or(""));
    index.tensors.emplace_back(tensor, static_cast<std::size_t>(at - index.files.begin()));
  }
  std::sort(index.tensors.begin(), index.tensors.end());
  index.total_size = document["metadata"]["total_size"].integer_or(-1);
  return index;
}

// As Json::dump() would write it, without the document: of many tensors that takes ten times the
// text.
void write_shard_index(const std::vector<std::string>& files,
                       const std::vector<std::pair<std::string_view, std::size_t>>& tensors,
                       std::int64_t total_size, const std::function<void(std::string_view)>& put) {
  std::vector<std::string> quoted;
  for (const std::string& file : files) quoted.push_back(Json(file).dump());
  put(text("{\n  \"metadata\": {\n    \"total_size\": ", std::max<std::int64_t>(total_size, 0),
           "\n  },\n  \"weight_map\": {"));
  std::string_view before = "\n    ";
  for (const auto& [tensor, file] : tensors) {
    put(text(before, Json(tensor).dump(), ": ", quoted[file]));
    before = ",\n    ";
  }
  put(tensors.empty() ? "}\n}\n" : "\n  }\n}\n");
}

std::string write_shard_index(const ShardIndex& index) {
  const std::vector<std::pair<std::string_view, std::size_t>> tensors(index.tensors.begin(),
                                                                      index.tensors.end());
  std::string out;
  write_shard_index(index.files, tensors, index.total_size,
                    [&](std::string_view piece) { out += piece; });
  return out;
}

}  // namespace octavo
