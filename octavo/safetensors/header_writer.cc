#include "octavo/safetensors/header_writer.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/json/json_text_internal.h"
#include "octavo/safetensors/placement_internal.h"

namespace octavo::safetensors {
namespace {

constexpr std::size_t kAlignment = 8;  // of the data

void append_tensor(std::string& out, const TensorEntry& tensor) {
  append_json_string(out, tensor.name);
  out += R"(:{"dtype":")";
  out += stored_name(tensor.type);
  out += R"(","shape":[)";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(tensor.shape[i]);
  }
  out += R"(],"data_offsets":[)";
  (out += std::to_string(tensor.begin)) += ',';
  (out += std::to_string(tensor.end)) += "]}";
}

void check_text(std::string_view value, std::string_view what, std::string_view file) {
  if (find_bad_utf8(value) == std::string_view::npos) return;
  fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": ", what, " '", shown(value),
       "' is not UTF-8, and a file's names must be; rename it");
}

void check_names(const std::vector<TensorPlan>& plans, const Metadata& metadata,
                 std::string_view file) {
  std::vector<std::string_view> names;
  names.reserve(plans.size());
  for (const TensorPlan& plan : plans) {
    check_text(plan.name, "tensor", file);
    names.push_back(plan.name);
  }
  for (const auto& [key, value] : metadata) {
    check_text(key, "metadata key", file);
    check_text(value, "metadata", file);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": ", shown_tensor(*twice),
         " was named twice; expected each name once");
  }
  if (std::binary_search(names.begin(), names.end(), kMetadataKey)) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": no tensor can be named '",
         kMetadataKey, "'; rename it");
  }
}

}  // namespace

Header place_tensors(std::vector<TensorPlan> plans, Metadata metadata, std::string_view file) {
  check_names(plans, metadata, file);
  std::sort(plans.begin(), plans.end(), [](const TensorPlan& a, const TensorPlan& b) {
    return std::tie(b.type, a.name) < std::tie(a.type, b.name);
  });
  Header header;
  header.metadata = std::move(metadata);
  for (TensorPlan& plan : plans) {
    TensorEntry tensor{std::move(plan.name), plan.type, std::move(plan.shape), header.data_bytes,
                       0};
    // A file is limited by the signed 64-bit file offset.
    constexpr std::uint64_t kMaxBytes = (std::uint64_t{1} << 63) - 1 - 2 * kMaxHeaderBytes;
    const std::uint64_t bytes = checked_bytes(tensor, file);
    if (bytes > kMaxBytes - header.data_bytes) {
      fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": with ", shown_tensor(tensor.name),
           " of shape ", shown_shape(tensor.shape), " the file would be longer than 2^63 bytes");
    }
    header.data_bytes += bytes;
    tensor.end = header.data_bytes;
    header.tensors.push_back(std::move(tensor));
  }
  const std::size_t length = write_header(header).size();
  if (length - kLengthBytes > kMaxHeaderBytes) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": the header would have ",
         length - kLengthBytes, " bytes; expected at most ", kMaxHeaderBytes,
         "; put the tensors into several files");
  }
  header.data_begin = length;
  check_placement(header, file);  // builds the index, and applies the reader's checks
  return header;
}

std::string write_header(const Header& header) {
  std::string out(kLengthBytes, '\0');
  out += '{';
  if (!header.metadata.empty()) {
    out += R"("__metadata__":{)";
    bool is_first = true;
    for (const auto& [key, value] : header.metadata) {
      if (!std::exchange(is_first, false)) out += ',';
      append_json_string(out, key);
      out += ':';
      append_json_string(out, value);
    }
    out += '}';
  }
  for (const TensorEntry& tensor : header.tensors) {
    if (out.back() != '{') out += ',';
    append_tensor(out, tensor);
  }
  out += '}';
  out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  std::uint64_t length = out.size() - kLengthBytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i, length >>= 8) {
    out[i] = static_cast<char>(length & 0xFF);
  }
  return out;
}

}  // namespace octavo::safetensors
