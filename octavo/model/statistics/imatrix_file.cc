#include "octavo/model/statistics/imatrix_file_internal.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/checkpoint/gguf/gguf_header.h"
#include "octavo/checkpoint/gguf/gguf_names.h"

namespace octavo::eval {
namespace {

constexpr const char* kOp = "statistics";
constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr float kMostOfASum = std::numeric_limits<float>::max(), kMostTokens = 0x1p53F;
constexpr std::uintmax_t kMaxBytes = std::uintmax_t{8} << 30;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail_on_file(ENOENT, path, kOp, "could not open '", shown(path, 400), "'");
  const auto size = static_cast<std::uintmax_t>(std::max<std::streamoff>(0, file.tellg()));
  check(size <= kMaxBytes, ErrorCode::invalid_argument, kOp, "'", shown(path, 400), "' has ",
        std::uint64_t{size}, " bytes; expected an imatrix file of at most 8 GiB");
  std::string content(static_cast<std::size_t>(size), '\0');
  file.seekg(0);
  file.read(content.data(), static_cast<std::streamsize>(size));
  if (!file) fail_on_file(EIO, path, kOp, "could not read '", shown(path, 400), "'");
  return content;
}

// "blk.3.ffn_down_exps.weight" with expert 5 is "model.layers.3.mlp.experts.5.down_proj"; nothing
// where the name has no other one.
std::string module_of(std::string_view gguf_name, std::size_t expert, std::size_t experts) {
  std::string name(gguf_name);
  const std::size_t stacked = name.find("_exps.weight");
  if (stacked != std::string::npos) name.erase(stacked, 5);
  std::string module = gguf::model_name(name);
  if (!module.ends_with(".weight")) return "";
  module.resize(module.size() - std::string_view(".weight").size());
  if (stacked == std::string::npos) return experts == 1 ? module : "";
  const std::size_t mlp = module.rfind("mlp.");
  if (mlp == std::string::npos) return "";
  return text(module.substr(0, mlp), "mlp.experts.", expert, ".", module.substr(mlp + 4));
}

// Squares and counts are no less than zero; a count of zero is an expert that no token reached.
void check_numbers(std::span<const float> numbers, float most, std::string_view what,
                   std::string_view name, std::string_view file) {
  const auto bad = std::find_if(numbers.begin(), numbers.end(),
                                [&](float number) { return !(number >= 0.0F && number <= most); });
  check(bad == numbers.end(), ErrorCode::invalid_argument, kOp, "'", shown(file, 400), "' has ",
        bad == numbers.end() ? 0.0F : *bad, " as a ", what, " of '", shown(name, 120),
        "'; expected a number from 0 to ", most, "; make the file again");
}

// Sums over `counts[i]` rows of each of the matrices of a tensor.
void add_tensor(std::string_view name, std::span<const float> sums, std::span<const double> counts,
                ModelStatistics& out) {
  const std::size_t width = counts.empty() ? 0 : sums.size() / counts.size();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::string module = module_of(name, i, counts.size());
    if (module.empty()) {
      out.notes.push_back(text("'", shown(name, 120),
                               "' is left out: octavo knows no module that "
                               "it would be in a model"));
      return;
    }
    ModuleStatistics one{.module = module, .rows = std::llround(counts[i])};
    for (const float sum : sums.subspan(i * width, width))
      one.mean_square.push_back(
          counts[i] > 0 ? static_cast<float>(static_cast<double>(sum) / counts[i]) : 0.0F);
    if (!(counts[i] > 0)) out.notes.push_back(text("'", shown(module, 120), "' has seen no token"));
    out.modules.push_back(std::move(one));
  }
}

// Little-endian pieces of a content, each checked against what is left.
class Pieces {
 public:
  Pieces(std::string_view content, std::string_view file) : content_(content), file_(file) {}
  [[nodiscard]] std::string_view take(std::size_t bytes, std::string_view what) {
    check(bytes <= content_.size() - at_, ErrorCode::invalid_argument, kOp, "'", shown(file_, 400),
          "' ends in the middle of ", what, "; expected a whole imatrix file");
    at_ += bytes;
    return content_.substr(at_ - bytes, bytes);
  }
  [[nodiscard]] std::int32_t integer(std::string_view what) {
    std::int32_t value = 0;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  // A count of elements of a given size.
  [[nodiscard]] std::size_t count(std::size_t each, std::string_view what) {
    const std::int32_t value = integer(what);
    check(value > 0 && static_cast<std::size_t>(value) <= (content_.size() - at_) / each,
          ErrorCode::invalid_argument, kOp, "'", shown(file_, 400), "' has ", value, " for ", what,
          ", which the file has no room for; expected statistics of octavo or an imatrix file");
    return static_cast<std::size_t>(value);
  }
  [[nodiscard]] bool is_at_end() const { return at_ == content_.size(); }

 private:
  std::string_view content_, file_;
  std::size_t at_ = 0;
};

}  // namespace

ModelStatistics parse_imatrix_binary(std::string_view content, std::string_view file) {
  static_assert(std::endian::native == std::endian::little);
  ModelStatistics out{.origin = {.made_by = "llama.cpp imatrix"}};
  Pieces pieces(content, file);
  // A name of a byte and a value, with their three lengths, are the least that an entry takes.
  const std::size_t entries = pieces.count(17, "the number of entries");
  std::vector<float> values;
  for (std::size_t i = 0; i < entries; ++i) {
    const std::string_view name = pieces.take(pieces.count(1, "the length of a name"), "a name");
    const std::int32_t calls = pieces.integer("a number of calls");
    check(calls > 0, ErrorCode::invalid_argument, kOp, "'", shown(file, 400), "' has ", calls,
          " calls of '", shown(name, 120), "'; expected one at least");
    const std::size_t width = pieces.count(sizeof(float), "the width of a tensor");
    values.resize(width);
    std::memcpy(values.data(), pieces.take(width * sizeof(float), "values").data(),
                width * sizeof(float));
    // The file has E[x^2] times calls, which are the chunks that were read. Which expert a part
    // belongs to is not in it.
    const double count = calls;
    check_numbers(values, kMostOfASum, "sum of squares", name, file);
    if (name.find("_exps.") != std::string_view::npos) {
      out.notes.push_back(text("'", shown(name, 120),
                               "' is left out: this format does not say how "
                               "many experts it has; a GGUF imatrix does"));
      continue;
    }
    add_tensor(name, values, {&count, 1}, out);
  }
  if (!pieces.is_at_end()) {
    (void)pieces.integer("the last chunk");
    if (!pieces.is_at_end())
      if (const std::int32_t length = pieces.integer("the length of the data's name"); length > 0)
        out.origin.texts.emplace_back(
            shown(pieces.take(static_cast<std::size_t>(length), "the data's name"), 400));
  }
  return out;
}

ModelStatistics read_imatrix_binary(const std::string& path) {
  return parse_imatrix_binary(content_of(path), path);
}

ModelStatistics read_imatrix_gguf(const std::string& path) {
  const std::string content = content_of(path);
  const gguf::Header header = gguf::parse_header(
      [&](std::uint64_t position, std::span<std::byte> into) {
        std::memcpy(into.data(), content.data() + position, into.size());
      },
      content.size(), path);
  const gguf::Value* const type = gguf::find_value(header, "general.type");
  check(type != nullptr && type->string().value_or("") == "imatrix", ErrorCode::invalid_argument,
        kOp, "'", shown(path, 400), "' is a GGUF file, but no imatrix; expected statistics");
  ModelStatistics out{.origin = {.made_by = "llama.cpp imatrix"}};
  if (const gguf::Value* const texts = gguf::find_value(header, "imatrix.datasets");
      texts != nullptr)
    for (const std::string_view name : texts->strings())
      out.origin.texts.emplace_back(shown(name, 400));
  const auto values_of = [&](const gguf::TensorInfo& tensor) {
    check(tensor.nbytes == tensor.elements * sizeof(float), ErrorCode::invalid_argument, kOp, "'",
          shown(path, 400), "' has tensor '", shown(tensor.name, 120),
          "' of another type; expected float32");
    std::vector<float> values(tensor.elements);
    std::memcpy(values.data(), content.data() + header.data_begin + tensor.begin, tensor.nbytes);
    return values;
  };
  std::map<std::string_view, const gguf::TensorInfo*> by_name;
  for (const gguf::TensorInfo& tensor : header.tensors) by_name.emplace(tensor.name, &tensor);
  for (const gguf::TensorInfo& tensor : header.tensors) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
    const std::string counts_name = text(name, kCounts);
    const auto of = by_name.find(counts_name);
    check(of != by_name.end(), ErrorCode::invalid_argument, kOp, "'", shown(path, 400), "' has '",
          shown(tensor.name, 120), "' without '", shown(counts_name, 120), "'");
    const std::vector<float> sums = values_of(tensor), narrow = values_of(*of->second);
    check(!narrow.empty() && sums.size() % narrow.size() == 0, ErrorCode::invalid_argument, kOp,
          "'", shown(path, 400), "' has ", sums.size(), " sums of '", shown(name, 120), "' for ",
          narrow.size(), " counts; expected a multiple");
    check_numbers(sums, kMostOfASum, "sum of squares", name, path);
    check_numbers(narrow, kMostTokens, "count", name, path);
    add_tensor(name, sums, std::vector<double>(narrow.begin(), narrow.end()), out);
  }
  return out;
}

}  // namespace octavo::eval
