#include "octavo/checkpoint/gguf/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/json/json_text_internal.h"

namespace octavo::gguf {
namespace {

constexpr std::uint64_t kMaxNameBytes = 65'535;  // of keys: what the specification allows
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::uint64_t kMaxAlignment = 1U << 20;
// A hundred times what models have; what is kept of one takes more memory than it has bytes here.
constexpr std::uint64_t kMaxKeys = 1U << 16, kMaxTensors = 1U << 17;

static_assert(std::endian::native == std::endian::little, "values are read as they stand");

// Bytes of one value, in the order of ValueType; 0 for strings and arrays.
constexpr std::array<std::uint64_t, 13> kValueBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Reads forward through a window, and knows how much there is left.
class Cursor {
 public:
  Cursor(const ReadBytes& read, std::uint64_t file_bytes, std::string_view file)
      : read_(read),
        end_(std::min(file_bytes, kMaxHeaderBytes)),
        file_bytes_(file_bytes),
        file_(file) {}

  [[nodiscard]] std::uint64_t position() const { return position_; }

  template <typename... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(ErrorCode::invalid_argument, kOp, "'", shown(file_, 200), "': ", text(parts...));
  }

  // Throws unless so many bytes are left.
  void need(std::uint64_t bytes, std::string_view what) const {
    if (bytes <= end_ - position_) return;
    if (file_bytes_ > end_)
      wrong(what, " ends beyond byte ", end_, ", the most that metadata may have");
    wrong(what, " of ", bytes, " bytes is cut off: ", end_ - position_,
          " are left; get the whole file");
  }

  void take(std::span<std::byte> into) {
    while (!into.empty()) {
      if (position_ < window_begin_ || position_ >= window_begin_ + window_.size()) fill();
      const auto at = static_cast<std::size_t>(position_ - window_begin_);
      const std::size_t count = std::min(into.size(), window_.size() - at);
      std::memcpy(into.data(), window_.data() + at, count);
      position_ += count;
      into = into.subspan(count);
    }
  }

  template <typename Number>
  Number number(std::string_view what) {
    need(sizeof(Number), what);
    Number out{};
    take(std::as_writable_bytes(std::span(&out, 1)));
    return out;
  }

  std::string bytes(std::uint64_t count, std::string_view what) {
    need(count, what);
    std::string out(static_cast<std::size_t>(count), '\0');
    take(std::as_writable_bytes(std::span(out)));
    return out;
  }

  std::string string(std::string_view what, std::uint64_t most = kMaxHeaderBytes) {
    const auto length = number<std::uint64_t>(what);
    if (length > most) wrong(what, " has ", length, " bytes; expected at most ", most);
    return bytes(length, what);
  }

 private:
  void fill() {
    constexpr std::uint64_t kWindow = 1U << 16;
    window_begin_ = position_;
    window_.resize(static_cast<std::size_t>(std::min(kWindow, end_ - position_)));
    read_(window_begin_, window_);
  }

  const ReadBytes& read_;
  std::uint64_t end_, file_bytes_, position_ = 0, window_begin_ = 0;
  std::vector<std::byte> window_;
  std::string_view file_;
};

ValueType value_type(Cursor& cursor, std::string_view key) {
  const auto number = cursor.number<std::uint32_t>("a value");
  if (number >= kValueBytes.size())
    cursor.wrong("key '", shown(key, 80), "' has a value of type ", number, "; expected 0 to ",
                 kValueBytes.size() - 1);
  return static_cast<ValueType>(number);
}

Value parse_value(Cursor& cursor, std::string_view key) {
  Value value{.type = value_type(cursor, key)};
  if (value.type == ValueType::string) {
    value.bytes = cursor.string("a value");
    return value;
  }
  if (value.type != ValueType::array) {
    value.bytes = cursor.bytes(kValueBytes[static_cast<std::size_t>(value.type)], "a value");
    return value;
  }
  value.is_array = true;
  value.type = value_type(cursor, key);
  value.count = cursor.number<std::uint64_t>("an array");
  if (value.type == ValueType::array)
    cursor.wrong("key '", shown(key, 80), "' is an array of arrays; expected numbers or strings");
  if (value.type != ValueType::string) {
    const std::uint64_t each = kValueBytes[static_cast<std::size_t>(value.type)];
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(value.count, each, &bytes))
      cursor.wrong("key '", shown(key, 80), "' has ", value.count, " elements");
    value.bytes = cursor.bytes(bytes, "an array");
    return value;
  }
  // Each string has eight bytes for its length at least.
  std::uint64_t least = 0;
  if (__builtin_mul_overflow(value.count, sizeof(std::uint64_t), &least))
    cursor.wrong("key '", shown(key, 80), "' has ", value.count, " strings");
  cursor.need(least, "an array");
  for (std::uint64_t i = 0; i < value.count; ++i) {
    const auto length = cursor.number<std::uint64_t>("a string");
    value.bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    value.bytes += cursor.bytes(length, "a string");
  }
  return value;
}

TensorInfo parse_tensor(Cursor& cursor) {
  TensorInfo tensor{.name = cursor.string("a tensor's name", kMaxNameBytes)};
  const std::string name = text("tensor '", shown(tensor.name, 120), "'");
  if (find_bad_utf8(tensor.name) != std::string_view::npos)
    cursor.wrong(name, " has a name that is not UTF-8");
  const auto dimensions = cursor.number<std::uint32_t>("a tensor");
  if (dimensions > kMaxDimensions)
    cursor.wrong(name, " has ", dimensions, " dimensions; expected at most ", kMaxDimensions);
  tensor.elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    tensor.shape.push_back(cursor.number<std::uint64_t>("a tensor"));
    // Sizes are read as signed numbers elsewhere.
    if (__builtin_mul_overflow(tensor.elements, tensor.shape.back(), &tensor.elements) ||
        tensor.elements > 1ULL << 60 || tensor.shape.back() > 1ULL << 60)
      cursor.wrong(name, " has more elements than can be counted");
  }
  const auto number = cursor.number<std::uint32_t>("a tensor");
  tensor.type = find_type(number);
  if (tensor.type == nullptr)
    cursor.wrong(name, " is of type ", number, ", which octavo does not know");
  const std::uint64_t row = tensor.shape.empty() ? 1 : tensor.shape.front();
  if (row % tensor.type->elements != 0)
    cursor.wrong(name, " has rows of ", row, " elements; expected a multiple of ",
                 tensor.type->elements, ", the blocks of ", tensor.type->name);
  tensor.nbytes = tensor.elements / tensor.type->elements * tensor.type->bytes;
  tensor.begin = cursor.number<std::uint64_t>("a tensor");
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  return tensor;
}

// Tensors lie one after another, each at the next multiple of the alignment, as every writer of
// GGUF files does and every reader expects.
void check_places(Cursor& cursor, Header& header, std::uint64_t file_bytes) {
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) { return a.begin < b.begin; });
  header.data_begin = padded(cursor.position(), header.alignment);
  std::uint64_t next = 0;
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : header.tensors) {
    const std::string name = text("tensor '", shown(tensor.name, 120), "'");
    if (!names.insert(tensor.name).second) cursor.wrong(name, " comes twice");
    if (tensor.begin % header.alignment != 0)
      cursor.wrong(name, " begins at byte ", tensor.begin, "; expected a multiple of ",
                   header.alignment);
    if (tensor.begin != next)
      cursor.wrong(name, " begins at byte ", tensor.begin, " of the data; expected ", next,
                   ": tensors lie one after another");
    const std::uint64_t room = file_bytes > header.data_begin ? file_bytes - header.data_begin : 0;
    if (tensor.begin > room || tensor.nbytes > room - tensor.begin)
      cursor.wrong(name, " ends at byte ", tensor.begin + tensor.nbytes,
                   " of the data, and the file has ", room, "; get the whole file");
    next = padded(tensor.begin + tensor.nbytes, header.alignment);
  }
}

void check_magic(Cursor& cursor, Header& header, std::string_view file) {
  const std::string magic = cursor.bytes(kMagic.size(), "a GGUF file");
  if (magic != kMagic) cursor.wrong("it is no GGUF file: it begins with '", shown(magic), "'");
  header.version = cursor.number<std::uint32_t>("a GGUF file");
  if (header.version == 2 || header.version == kVersion) return;
  const bool big = header.version != 0 && (header.version & 0xFFFF) == 0;
  fail(ErrorCode::unsupported, kOp, "'", shown(file, 200), "' is ",
       big ? std::string("a GGUF file in big-endian order")
           : text("of GGUF version ", header.version),
       "; expected version 2 or 3, little-endian; convert the model anew with llama.cpp");
}

}  // namespace

std::uint64_t padded(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

Header parse_header(const ReadBytes& read, std::uint64_t file_bytes, std::string_view file) {
  Cursor cursor(read, file_bytes, file);
  Header header;
  check_magic(cursor, header, file);
  const auto tensors = cursor.number<std::uint64_t>("a GGUF file");
  const auto keys = cursor.number<std::uint64_t>("a GGUF file");
  if (tensors > kMaxTensors || keys > kMaxKeys)
    cursor.wrong("it says that it has ", tensors, " tensors and ", keys, " keys; expected at most ",
                 kMaxTensors, " and ", kMaxKeys);
  for (std::uint64_t i = 0; i < keys; ++i) {
    std::string key = cursor.string("a key", kMaxNameBytes);
    Value value = parse_value(cursor, key);
    const std::string name = shown(key, 80);
    if (!header.metadata.emplace(std::move(key), std::move(value)).second)
      cursor.wrong("key '", name, "' comes twice");
  }
  if (const auto alignment = header.metadata.find("general.alignment");
      alignment != header.metadata.end()) {
    const auto bytes = alignment->second.integer().value_or(0);
    if (bytes <= 0 || bytes > static_cast<std::int64_t>(kMaxAlignment) || bytes % 8 != 0)
      cursor.wrong("general.alignment is ", bytes, "; expected a multiple of 8, at most ",
                   kMaxAlignment);
    header.alignment = static_cast<std::uint64_t>(bytes);
  }
  for (std::uint64_t i = 0; i < tensors; ++i) header.tensors.push_back(parse_tensor(cursor));
  check_places(cursor, header, file_bytes);
  return header;
}

}  // namespace octavo::gguf
