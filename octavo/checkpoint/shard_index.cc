// Parses and writes the shard index; its content is untrusted.
#include "octavo/checkpoint/shard_index.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "checkpoint";

// "model-00002-of-00003.safetensors".
struct ShardName {
  std::string_view prefix;  // "model"
  std::int64_t number = 0, of = 0;
};

// Removes the digits at the end of `text` and returns their value; -1 where there are none, or too
// many.
std::int64_t take_number(std::string_view& text) {
  const std::size_t last = text.find_last_not_of("0123456789");
  const std::string_view digits = text.substr(last == std::string_view::npos ? 0 : last + 1);
  std::int64_t number = -1;
  if (digits.empty() || digits.size() > 9) return -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  text.remove_suffix(digits.size());
  return number;
}

bool take_end(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

std::optional<ShardName> shard_name(std::string_view file) {
  ShardName out;
  if (!take_end(file, ".safetensors") || (out.of = take_number(file)) < 1 ||
      !take_end(file, "-of-") || (out.number = take_number(file)) < 0 || !take_end(file, "-"))
    return std::nullopt;
  out.prefix = file;
  return out;
}

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
         "' has no object weight_map; expected one that names the file of every tensor");
  if (map.members().empty())
    fail(ErrorCode::invalid_argument, kOp, "'", shown(file),
         "' has an empty weight_map; expected one that names the file of every tensor; get the "
         "index "
         "of the model, or remove it where there is one file");
  ShardIndex index;
  for (const auto& [tensor, value] : map.members()) {
    if (!value.is_string())
      fail(ErrorCode::invalid_argument, kOp, "'", shown(file), "' gives tensor '", shown(tensor),
           "' something that is no name of a file");
    const std::string_view name = value.string_or("");
    if (!is_plain_file_name(name))
      fail(ErrorCode::invalid_argument, kOp, "'", shown(file), "' puts tensor '", shown(tensor),
           "' into '", shown(name), "'; expected the plain name of a file in the same folder");
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

void check_no_shard_is_left_out(const std::vector<std::string>& used,
                                const std::vector<std::string>& in_folder, std::string_view index) {
  constexpr std::string_view kFix = "; get the index and all files of one model";
  std::map<std::pair<std::string_view, std::int64_t>, std::set<std::int64_t>> sets;
  std::set<std::string_view> prefixes;
  for (const std::string& name : used) {
    const auto shard = shard_name(name);
    prefixes.insert(shard ? shard->prefix
                          : std::string_view(name).substr(0, name.rfind(".safetensors")));
    if (shard) sets[{shard->prefix, shard->of}].insert(shard->number);
  }
  for (const auto& [set, numbers] : sets) {
    const std::int64_t first = numbers.contains(0) ? 0 : 1;  // some writers count from 0
    std::int64_t missing = first;
    while (numbers.contains(missing)) ++missing;
    if (missing < first + set.second)
      fail(ErrorCode::invalid_argument, kOp, "'", shown(index, 80), "' names ", numbers.size(),
           " of ", set.second, " files '", shown(set.first, 60), "-...-of-...', and not number ",
           missing, kFix);
  }
  for (const std::string& name : in_folder) {
    const auto shard = shard_name(name);
    if (shard && prefixes.contains(shard->prefix) &&
        std::find(used.begin(), used.end(), name) == used.end())
      fail(ErrorCode::invalid_argument, kOp, "'", shown(index, 80), "' does not name '",
           shown(name, 80), "', which is in the same folder and numbered like a part of the model",
           kFix, ", or remove what is of another");
  }
}

// The text of Json::dump() without building the document, which for many tensors takes ten times
// the text's memory.
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
