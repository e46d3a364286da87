#include "octavo/safetensors/header.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/json/json_reader_internal.h"
#include "octavo/base/json/json_text_internal.h"
#include "octavo/safetensors/placement_internal.h"

namespace octavo::safetensors {
namespace {

// Single-pass parser. Tensors are kept in the order of the text, so that of duplicates the later
// wins.
class HeaderParser {
 public:
  HeaderParser(std::string_view json, const ReadOptions& options)
      : json_(json), strict_(options.strict) {}

  void parse(Header& header) {
    bool has_metadata = false;
    json_.begin_object();
    for (std::string key; json_.next_key(key);) {
      if (key == kMetadataKey) {
        if (std::exchange(has_metadata, true)) json_.fail("got key '__metadata__' twice");
        parse_metadata(header.metadata);
      } else {
        try {
          header.tensors.push_back(parse_tensor());
        } catch (JsonProblem& problem) {
          problem.what = text(shown_tensor(key), ": ", problem.what);
          throw;
        }
        header.tensors.back().name = std::move(key);
      }
    }
    json_.end();
  }

 private:
  void parse_metadata(Metadata& metadata) {
    if (json_.null()) return;
    json_.begin_object();
    for (std::string key; json_.next_key(key);) {
      const bool is_new = metadata.insert_or_assign(key, json_.string()).second;
      if (strict_ && !is_new) json_.fail(text("got metadata key '", shown(key), "' twice"));
    }
  }

  TensorEntry parse_tensor() {
    TensorEntry tensor;
    bool has_type = false, has_shape = false, has_place = false;
    std::set<std::string> others;  // only filled when strict
    const auto once = [&](bool& seen, std::string_view field) {
      if (std::exchange(seen, true)) json_.fail(text("got field '", field, "' twice"));
    };
    json_.begin_object();
    for (std::string field; json_.next_key(field);) {
      if (field == "dtype") {
        once(has_type, field);
        tensor.type = parse_type();
      } else if (field == "shape") {
        once(has_shape, field);
        json_.begin_array();
        while (json_.next_element()) tensor.shape.push_back(json_.integer());
      } else if (field == "data_offsets") {
        once(has_place, field);
        parse_place(tensor);
      } else {  // an unknown extension: ignored, but it must be valid JSON
        if (strict_ && !others.insert(field).second) {
          json_.fail(text("got field '", shown(field), "' twice"));
        }
        json_.skip_value(strict_);
      }
    }
    if (!has_type) json_.fail("got no field 'dtype'; expected one");
    if (!has_shape) json_.fail("got no field 'shape'; expected one");
    if (!has_place) json_.fail("got no field 'data_offsets'; expected one");
    return tensor;
  }

  StoredType parse_type() {
    const std::string name = json_.string();
    const std::optional<StoredType> type = find_stored_type(name);
    if (!type) {
      json_.fail(text("got dtype '", shown(name),
                      "'; expected one of the file format's, such as F32, ", "BF16 or F8_E4M3"));
    }
    return *type;
  }

  void parse_place(TensorEntry& tensor) {
    constexpr std::string_view kWanted = "expected data_offsets of two numbers, [begin, end]";
    json_.begin_array();
    if (!json_.next_element()) json_.fail(std::string(kWanted));
    tensor.begin = json_.integer();
    if (!json_.next_element()) json_.fail(std::string(kWanted));
    tensor.end = json_.integer();
    if (json_.next_element()) json_.fail(std::string(kWanted));
  }

  JsonReader json_;
  bool strict_;
};

// Of tensors with the same name the last is kept, as in a Python dict.
void keep_last_of_each_name(std::vector<TensorEntry>& tensors, bool strict, std::string_view file) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool is_last = i + 1 == tensors.size() || tensors[i + 1].name != tensors[i].name;
    if (strict && !is_last) {
      fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": ", shown_tensor(tensors[i].name),
           " is there twice; expected each name once; write the file anew or read it without "
           "strict");
    }
    if (!is_last) continue;
    if (kept != i) tensors[kept] = std::move(tensors[i]);
    ++kept;
  }
  tensors.resize(kept);
}

}  // namespace

std::uint64_t read_header_length(std::span<const std::byte> first_bytes, std::uint64_t file_bytes,
                                 std::string_view file) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), " has ", counted(file_bytes, "byte"),
         "; expected at least 8 for the length of a header; it is no safetensors file, or was "
         "cut short");
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(first_bytes[i]);
  }
  if (length > kMaxHeaderBytes) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), " announces a header of ", length,
         " bytes; expected at most ", kMaxHeaderBytes, "; it is no safetensors file");
  }
  if (length > file_bytes - kLengthBytes) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), " announces a header of ", length,
         " bytes, but has only ", file_bytes - kLengthBytes,
         " after the length; it is truncated, download it again");
  }
  return length;
}

Header parse_header(std::string_view json, std::uint64_t file_bytes, std::string_view file,
                    const ReadOptions& options) {
  check(json.size() <= kMaxHeaderBytes && file_bytes >= kLengthBytes + json.size(),
        ErrorCode::invalid_argument, kOp, "a header of ", json.size(),
        " bytes cannot be in a file of ", file_bytes);
  const auto fail_text = [&](std::size_t at, const auto&... parts) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": header, byte ", at, ": ", parts...,
         "; the file is damaged or no safetensors file");
  };
  const std::size_t bad = find_bad_utf8(json);
  if (bad != std::string_view::npos) fail_text(bad, "got bytes that are not UTF-8; expected text");
  if (options.strict && !json.empty() && json.front() != '{') {
    fail_text(0, "got '", shown(json.substr(0, 1)), "'; expected '{' at once");
  }
  Header header;
  try {
    HeaderParser(json, options).parse(header);
  } catch (const JsonProblem& problem) {
    fail_text(problem.at, problem.what);
  }
  header.data_begin = kLengthBytes + json.size();
  header.data_bytes = file_bytes - header.data_begin;
  keep_last_of_each_name(header.tensors, options.strict, file);
  check_placement(header, file);
  return header;
}

Header parse_header_of(std::span<const std::byte> whole_file, std::string_view file,
                       const ReadOptions& options) {
  const std::uint64_t length =
      read_header_length(whole_file.first(std::min<std::size_t>(whole_file.size(), kLengthBytes)),
                         whole_file.size(), file);
  const auto json = whole_file.subspan(kLengthBytes, length);
  return parse_header({reinterpret_cast<const char*>(json.data()), json.size()}, whole_file.size(),
                      file, options);
}

}  // namespace octavo::safetensors
