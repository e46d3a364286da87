#include <algorithm>
#include <numeric>
#include <tuple>

#include "octavo/base/error.h"
#include "octavo/safetensors/placement_internal.h"

namespace octavo::safetensors {

std::string shown_file(std::string_view file) {
  constexpr std::size_t kMax = 200;  // a path, not a word
  return text("'", shown(file, kMax), "'");
}

std::string shown_tensor(std::string_view name) {
  constexpr std::size_t kMax = 100;  // module paths are long
  return text("tensor '", shown(name, kMax), "'");
}

std::string shown_shape(std::span<const std::uint64_t> shape) {
  constexpr std::size_t kMax = 8;
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size() && i < kMax; ++i) {
    out += text(i > 0 ? ", " : "", shape[i]);
  }
  return out + (shape.size() > kMax ? text(", ... ", shape.size(), " sizes]") : "]");
}

std::uint64_t checked_bytes(const TensorEntry& tensor, std::string_view file) {
  // Multiplied from left to right, as the Rust reader does: [2^63, 2, 0] overflows, [0, 2^63, 2]
  // does not.
  std::uint64_t bits = 1;
  bool overflows = false;
  for (const std::uint64_t size : tensor.shape) {
    overflows = overflows || __builtin_mul_overflow(bits, size, &bits);
  }
  overflows = overflows || __builtin_mul_overflow(
                               bits, static_cast<std::uint64_t>(stored_bits(tensor.type)), &bits);
  if (overflows) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": ", shown_tensor(tensor.name),
         " has shape ", shown_shape(tensor.shape), "; expected at most 2^64 - 1 bits; ",
         "the file is damaged or hostile");
  }
  if (bits % 8 != 0) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": ", shown_tensor(tensor.name),
         " of ", stored_name(tensor.type), " and shape ", shown_shape(tensor.shape),
         " ends inside a byte; expected whole bytes; pad its last dimension");
  }
  return bits / 8;
}

void check_placement(Header& header, std::string_view file) {
  // Stable: empty tensors at the same offset keep their order.
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
                   });
  std::uint64_t filled = 0;
  for (const TensorEntry& tensor : header.tensors) {
    const auto fail_tensor = [&](const auto&... parts) {
      fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": ", shown_tensor(tensor.name),
           " lies at bytes ", tensor.begin, " to ", tensor.end, parts...,
           "; the file is damaged, get it again");
    };
    if (tensor.end < tensor.begin) fail_tensor("; expected the beginning before the end");
    if (tensor.begin > filled) fail_tensor(" after a hole; expected it to begin at ", filled);
    if (tensor.begin < filled) fail_tensor(" inside another; expected it to begin at ", filled);
    const std::uint64_t bytes = checked_bytes(tensor, file);
    if (tensor.nbytes() != bytes) {
      fail_tensor("; expected ", bytes, " bytes for ", stored_name(tensor.type), " of shape ",
                  shown_shape(tensor.shape));
    }
    filled = tensor.end;
  }
  if (filled != header.data_bytes) {
    fail(ErrorCode::invalid_argument, kOp, shown_file(file), ": the tensors end at byte ", filled,
         " of the data, but the file has ", header.data_bytes, " bytes of data; ",
         filled > header.data_bytes ? "the file was cut short, get it again"
                                    : "something was added to the file, get it again");
  }

  header.by_name.resize(header.tensors.size());
  std::iota(header.by_name.begin(), header.by_name.end(), 0U);
  std::sort(header.by_name.begin(), header.by_name.end(), [&](std::uint32_t a, std::uint32_t b) {
    return header.tensors[a].name < header.tensors[b].name;
  });
}

const TensorEntry* Header::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [this](std::uint32_t i, std::string_view wanted) { return tensors[i].name < wanted; });
  return found != by_name.end() && tensors[*found].name == name ? &tensors[*found] : nullptr;
}

}  // namespace octavo::safetensors
