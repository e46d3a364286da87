#include "cli/npy/npy.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "cli/text/suggest.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxDimensions = 64;  // numpy's own limit
constexpr std::size_t kAlignment = 64;

template <typename... Parts>
[[noreturn]] void fail_npy(const Parts&... parts) {
  throw NpyProblem(text(parts...));
}

std::uint8_t byte_at(std::span<const std::byte> bytes, std::size_t i) {
  return std::to_integer<std::uint8_t>(bytes[i]);
}

// Two bytes of length in version 1, four in 2 and 3.
std::size_t preamble_size(std::uint8_t major) { return kMagic.size() + 2 + (major == 1 ? 2 : 4); }

// Parser of the header, a Python dictionary of literals. Accepts only what a header may contain.
class Literals {
 public:
  explicit Literals(std::string_view text) : rest_(text) {}

  void skip_space() {
    const std::size_t next = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(std::min(next, rest_.size()));
  }
  bool take(std::string_view word) {
    skip_space();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word))
      fail_npy("has a broken header: expected '", word, "' at '", shown(rest_.substr(0, 20)), "'");
  }
  [[nodiscard]] bool at(char c) {
    skip_space();
    return !rest_.empty() && rest_[0] == c;
  }
  bool done() {
    skip_space();
    return rest_.empty();
  }

  std::string take_string() {
    skip_space();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    if (quote != '\'' && quote != '"')
      fail_npy("has a broken header: expected a string at '", shown(rest_.substr(0, 20)), "'");
    const std::size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) fail_npy("has a broken header: a string does not end");
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    if (text.find('\\') != std::string::npos)
      fail_npy("has a broken header: an escape in a string");
    return text;
  }

  bool take_bool() {
    if (take("True")) return true;
    expect("False");
    return false;
  }

  std::int64_t take_size() {
    skip_space();
    std::int64_t value = 0;
    std::size_t digits = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{rest_[digits] - '0'}, &value)) {
        fail_npy("has a size that does not fit in 64 bits");
      }
    }
    if (digits == 0)
      fail_npy("has a broken header: expected a size of zero or more at '",
               shown(rest_.substr(0, 20)), "'");
    rest_.remove_prefix(digits);
    take("L");  // Python 2 wrote long integers so
    return value;
  }

  std::vector<std::int64_t> take_shape() {
    std::vector<std::int64_t> shape;
    expect("(");
    while (!take(")")) {
      if (shape.size() == kMaxDimensions) fail_npy("has more than ", kMaxDimensions, " dimensions");
      shape.push_back(take_size());
      if (!at(')')) expect(",");
    }
    return shape;
  }

 private:
  std::string_view rest_;
};

void parse_descr(const std::string& descr, NpyHeader& header) {
  constexpr std::string_view kWanted =
      "expected float16, float32, float64, or uint8 / uint16 / raw bytes that hold codes; make "
      "values of it with .astype('float32')";
  const char order = descr.empty() ? '\0' : descr[0];
  const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
  const std::string type = descr.substr(has_order ? 1 : 0);
  if (type.size() != 2 || type[1] < '0' || type[1] > '9') {
    fail_npy("holds elements of type '", shown(descr), "', ", kWanted);
  }
  header.item_bytes = type[1] - '0';
  switch (type[0]) {
    case 'f':
      // float8_e5m2 of ml_dtypes is saved as 'f1', which numpy itself cannot load.
      header.kind = header.item_bytes == 1 ? NpyKind::raw : NpyKind::real;
      break;
    case 'u':
    case 'i':
      header.kind = NpyKind::integer;
      header.is_signed = type[0] == 'i';
      break;
    case 'V':
      header.kind = NpyKind::raw;
      break;
    default:
      header.item_bytes = 0;
  }
  const int bytes = header.item_bytes;
  const bool known = header.kind == NpyKind::real ? bytes == 2 || bytes == 4 || bytes == 8
                                                  : bytes == 1 || bytes == 2;
  if (!known) fail_npy("holds elements of type '", shown(descr), "', ", kWanted);
  if (order == '>' && bytes > 1) {
    fail_npy("is big-endian ('", shown(descr),
             "'); expected little-endian; save it with .astype(a.dtype.newbyteorder('<'))");
  }
}

void check_size(const NpyHeader& header) {
  std::int64_t bytes = header.item_bytes;
  // As in numpy: a zero anywhere makes the array empty, but the other sizes must still be valid.
  for (const std::int64_t size : header.shape) {
    if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes)) {
      fail_npy("says it has shape ", shape_text(header.shape), ", more than 63 bits can count");
    }
  }
}

}  // namespace

std::size_t npy_data_offset(std::span<const std::byte> start) {
  for (std::size_t i = 0; i < kMagic.size(); ++i) {
    if (i >= start.size() || byte_at(start, i) != static_cast<std::uint8_t>(kMagic[i])) {
      fail_npy("is no .npy file: it does not begin with \\x93NUMPY");
    }
  }
  if (start.size() < kMagic.size() + 2) fail_npy("ends within its header");
  const std::uint8_t major = byte_at(start, 6), minor = byte_at(start, 7);
  if (major < 1 || major > 3 || minor != 0) {
    fail_npy("has .npy version ", int{major}, ".", int{minor}, "; expected 1.0, 2.0 or 3.0");
  }
  const std::size_t preamble = preamble_size(major);
  if (start.size() < preamble) fail_npy("ends within its header");
  std::size_t length = 0;
  for (std::size_t i = preamble; i-- > kMagic.size() + 2;) length = length << 8 | byte_at(start, i);
  if (length > kMaxNpyHeader)
    fail_npy("says its header has ", length, " bytes; expected at most ", kMaxNpyHeader);
  return preamble + length;
}

NpyHeader parse_npy_header(std::span<const std::byte> before_data) {
  const std::size_t offset = npy_data_offset(before_data);
  if (before_data.size() < offset) fail_npy("ends within its header");
  const std::size_t preamble = preamble_size(byte_at(before_data, 6));
  Literals literals(
      {reinterpret_cast<const char*>(before_data.data()) + preamble, offset - preamble});

  NpyHeader header;
  std::optional<std::string> descr;
  bool has_order = false, has_shape = false;
  literals.expect("{");
  while (!literals.take("}")) {
    const std::string key = literals.take_string();
    literals.expect(":");
    if (key == "descr" && !descr) {
      if (literals.at('['))
        fail_npy(
            "holds records (a structured dtype); expected an array of numbers; save one field of "
            "it");
      descr = literals.take_string();
    } else if (key == "fortran_order" && !has_order) {
      header.fortran_order = literals.take_bool();
      has_order = true;
    } else if (key == "shape" && !has_shape) {
      header.shape = literals.take_shape();
      has_shape = true;
    } else {
      fail_npy("has a broken header: key '", shown(key),
               "'; expected descr, fortran_order and shape, once each");
    }
    if (!literals.at('}')) literals.expect(",");
  }
  if (!literals.done() || !descr || !has_order || !has_shape) {
    fail_npy("has a broken header: expected descr, fortran_order and shape, and nothing else");
  }
  parse_descr(*descr, header);
  check_size(header);
  return header;
}

std::string write_npy_header(const NpyHeader& header) {
  std::string dictionary = text("{'descr': '", descr_of(header),
                                "', 'fortran_order': ", header.fortran_order ? "True" : "False",
                                ", 'shape': ", shape_text(header.shape), ", }");
  const std::uint8_t major = dictionary.size() + kAlignment < 65536 ? 1 : 2;
  const std::size_t preamble = preamble_size(major);
  const std::size_t whole =
      (preamble + dictionary.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  dictionary.resize(whole - preamble - 1, ' ');
  dictionary += '\n';

  std::string out(kMagic);
  out += static_cast<char>(major);
  out += '\0';
  std::size_t length = dictionary.size();
  for (std::size_t i = kMagic.size() + 2; i < preamble; ++i, length >>= 8)
    out += static_cast<char>(length & 0xFF);
  return out + dictionary;
}

std::int64_t element_count(const NpyHeader& header) {
  std::int64_t count = 1;
  for (const std::int64_t size : header.shape) {
    if (size == 0) return 0;
    count *= size;  // cannot overflow after check_size
  }
  return count;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) out += text(i ? ", " : "", shape[i]);
  return out + (shape.size() == 1 ? ",)" : ")");
}

std::string descr_of(const NpyHeader& header) {
  const char kind = header.is_signed ? 'i' : static_cast<char>(header.kind);
  return text(header.item_bytes == 1 ? '|' : '<', kind, header.item_bytes);
}

}  // namespace octavo::cli
