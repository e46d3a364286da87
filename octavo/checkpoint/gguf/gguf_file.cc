#include "octavo/checkpoint/gguf/gguf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/checkpoint/gguf/block_decode.h"
#include "octavo/checkpoint/gguf/gguf_config.h"
#include "octavo/checkpoint/gguf/gguf_names.h"
#include "octavo/checkpoint/gguf/gguf_tokenizer.h"

namespace octavo::gguf {
namespace {

std::uint64_t plain_file_bytes(int descriptor, const std::string& path) {
  struct stat status {};
  if (descriptor < 0)
    fail(ErrorCode::io, kOp, "could not open '", shown(path, 200), "': ", std::strerror(errno));
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    fail(ErrorCode::io, kOp, "'", shown(path, 200), "' is no plain file");
  return static_cast<std::uint64_t>(status.st_size);
}

std::uint64_t element_bytes(const TensorInfo& tensor) {
  return static_cast<std::uint64_t>(safetensors::stored_bits(tensor.type->read_as) / 8);
}

}  // namespace

bool is_gguf(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, kMagic.size()> first{};
  return file.number() >= 0 &&
         pread(file.number(), first.data(), first.size(), 0) ==
             static_cast<ssize_t>(first.size()) &&
         std::string_view(first.data(), first.size()) == kMagic;
}

std::int64_t rope_row(std::int64_t row, std::int64_t rows, std::int64_t heads) {
  const std::int64_t head = rows / heads, half = head / 2;
  const std::int64_t within = row % head;
  return row - within + within % half * 2 + within / half;
}

File::File(const std::string& path)
    : path_(path),
      descriptor_(std::make_unique<const Descriptor>(
          open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))) {
  const std::uint64_t bytes = plain_file_bytes(descriptor_->number(), path);
  gguf_ = parse_header(
      [this](std::uint64_t position, std::span<std::byte> into) { read_file(position, into); },
      bytes, path);
  if (const Value* const split = find_value(gguf_, "split.count");
      split != nullptr && split->integer().value_or(0) > 1)
    fail(ErrorCode::unsupported, kOp, "'", shown(path, 200), "' is one of ", *split->integer(),
         " parts of a model; expected one file; put them together with llama-gguf-split --merge");
  take_tensors();
  config_ = make_config(gguf_, rope_factors(), notes_);
  if (const std::string why = why_no_tokenizer(gguf_); why.empty()) {
    made_files_ = {"tokenizer.json", "tokenizer_config.json"};
  } else {
    notes_.push_back(text("no tokenizer.json is made: ", why));
  }
}

File::~File() = default;

std::vector<float> File::rope_factors() const {
  constexpr std::uint64_t kMax = 4096;  // half a head
  for (const TensorInfo& tensor : gguf_.tensors) {
    if (tensor.name != kRopeFactors) continue;
    check(tensor.type->name == "F32" && tensor.elements <= kMax, ErrorCode::invalid_argument, kOp,
          "'", shown(path_, 200), "': ", kRopeFactors, " has ", tensor.elements, " elements of ",
          tensor.type->name, "; expected F32, at most ", kMax);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements));
    read_elements(tensor, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
  return {};
}

// Under the names that the model has elsewhere; those of unknown architectures keep theirs.
void File::take_tensors() {
  const Family family = family_of(gguf_);
  if (!family.known())
    notes_.push_back(text("architecture '", shown(architecture_of(gguf_)),
                          "' is not one that octavo knows (", known_architectures(),
                          "): tensors keep their names, and there is no config.json"));
  std::size_t renamed_not = 0;
  for (std::size_t i = 0; i < gguf_.tensors.size(); ++i) {
    const TensorInfo& tensor = gguf_.tensors[i];
    if (family.known() && tensor.name == kRopeFactors) continue;  // they are in config.json
    std::string name = family.known() ? model_name(tensor.name) : tensor.name;
    if (name.empty()) {
      ++renamed_not;
      name = tensor.name;
    }
    const std::int64_t heads = family.rope_heads(tensor);
    const std::uint64_t begin = header_.data_bytes;
    header_.data_bytes += tensor.elements * element_bytes(tensor);
    header_.tensors.push_back({.name = std::move(name),
                               .type = tensor.type->read_as,
                               .shape = tensor.shape,
                               .begin = begin,
                               .end = header_.data_bytes});
    sources_.push_back({i, heads});
  }
  if (renamed_not > 0)
    notes_.push_back(text(renamed_not,
                          renamed_not == 1 ? " tensor keeps its" : " tensors keep their",
                          " name: it has no other that octavo knows"));
  header_.data_begin = gguf_.data_begin;
  header_.by_name.resize(header_.tensors.size());
  std::iota(header_.by_name.begin(), header_.by_name.end(), 0U);
  std::sort(header_.by_name.begin(), header_.by_name.end(), [&](std::uint32_t a, std::uint32_t b) {
    return header_.tensors[a].name < header_.tensors[b].name;
  });
  for (std::size_t i = 1; i < header_.by_name.size(); ++i)
    if (const std::string& name = header_.tensors[header_.by_name[i]].name;
        name == header_.tensors[header_.by_name[i - 1]].name)
      fail(ErrorCode::invalid_argument, kOp, "'", shown(path_, 200), "': two tensors would be '",
           shown(name, 120), "'; expected one");
}

const File::Source& File::source_of(std::string_view name) const {
  const safetensors::TensorEntry* const found = header_.find(name);
  check(found != nullptr, ErrorCode::invalid_argument, kOp, "'", shown(path_, 200),
        "' has no tensor '", shown(name, 120), "'");
  return sources_[static_cast<std::size_t>(found - header_.tensors.data())];
}

const TensorInfo& File::stored(std::string_view name) const {
  return gguf_.tensors[source_of(name).tensor];
}

std::string File::made_file(std::string_view name) const {
  return name == "tokenizer.json" ? tokenizer_json(gguf_) : tokenizer_config_json(gguf_);
}

void File::read_file(std::uint64_t position, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got =
        pread(descriptor_->number(), into.data(), into.size(), static_cast<off_t>(position));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      fail(ErrorCode::io, kOp, "could not read '", shown(path_, 200),
           "': ", got < 0 ? std::strerror(errno) : "it became shorter");
    position += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

// Blocks are decoded a few at a time; a range may begin and end inside one.
void File::read_elements(const TensorInfo& tensor, std::uint64_t first,
                         std::span<std::byte> into) const {
  const TensorType& type = *tensor.type;
  const std::uint64_t data = gguf_.data_begin + tensor.begin;
  if (!type.is_block()) return read_file(data + first * type.bytes, into);
  check(type.decoded, ErrorCode::unsupported, kOp, "tensor '", shown(tensor.name, 120), "' of '",
        shown(path_, 200), "' is stored as ", type.name,
        ", which octavo does not decode; convert the model with another type, such as Q8_0");
  constexpr std::uint64_t kTogether = 64;
  const std::uint64_t end = first + into.size() / sizeof(float);
  std::vector<std::byte> blocks;
  std::vector<float> values;
  for (std::uint64_t at = first; at < end;) {
    const std::uint64_t block = at / type.elements;
    const std::uint64_t count =
        std::min(kTogether, (end + type.elements - 1) / type.elements - block);
    blocks.resize(static_cast<std::size_t>(count * type.bytes));
    values.resize(static_cast<std::size_t>(count * type.elements));
    read_file(data + block * type.bytes, blocks);
    decode_blocks(type, blocks, values);
    const std::uint64_t skip = at - block * type.elements;
    const std::uint64_t take = std::min(count * type.elements - skip, end - at);
    std::memcpy(into.data() + (at - first) * sizeof(float), values.data() + skip,
                static_cast<std::size_t>(take * sizeof(float)));
    at += take;
  }
}

void File::read(const safetensors::TensorEntry& entry, std::uint64_t offset,
                std::span<std::byte> into) const {
  if (into.empty()) return;
  const Source& source = source_of(entry.name);
  const TensorInfo& tensor = gguf_.tensors[source.tensor];
  const std::uint64_t size = element_bytes(tensor);
  // Callers read whole elements; a range that is none is widened to some.
  if (offset % size != 0 || into.size() % size != 0) {
    const std::uint64_t begin = offset / size * size;
    const std::uint64_t end = (offset + into.size() + size - 1) / size * size;
    std::vector<std::byte> whole(static_cast<std::size_t>(end - begin));
    read(entry, begin, whole);
    std::memcpy(into.data(), whole.data() + (offset - begin), into.size());
    return;
  }
  std::uint64_t first = offset / size;
  if (source.rope_heads == 0) return read_elements(tensor, first, into);
  const std::uint64_t cols = tensor.shape.size() > 1 ? tensor.shape.back() : 1;
  while (!into.empty()) {
    const std::uint64_t row = first / cols, col = first % cols;
    const std::uint64_t count = std::min(cols - col, into.size() / size);
    const std::int64_t from =
        rope_row(static_cast<std::int64_t>(row), static_cast<std::int64_t>(tensor.shape.front()),
                 source.rope_heads);
    read_elements(tensor, static_cast<std::uint64_t>(from) * cols + col,
                  into.first(static_cast<std::size_t>(count * size)));
    first += count;
    into = into.subspan(static_cast<std::size_t>(count * size));
  }
}

}  // namespace octavo::gguf
