#include "octavo/model/statistics/statistics_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/gguf/gguf_file.h"
#include "octavo/model/model_fingerprint_internal.h"
#include "octavo/model/statistics/imatrix_file_internal.h"
#include "octavo/model/statistics/statistics_names_internal.h"
#include "octavo/safetensors/file_reader.h"

namespace octavo {
namespace {

using namespace eval;
using safetensors::StoredType;
using safetensors::TensorEntry;

constexpr const char* kOp = "statistics";

std::string_view metadata_of(const safetensors::Header& header, std::string_view key) {
  const auto at = header.metadata.find(key);
  return at == header.metadata.end() ? std::string_view() : std::string_view(at->second);
}

// Does the file begin as safetensors files do, with a length and a brace?
bool is_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 9> begin{};
  file.read(begin.data(), begin.size());
  return file.gcount() == static_cast<std::streamsize>(begin.size()) && begin[8] == '{';
}

}  // namespace

struct StatisticsFile::State {
  std::string path{};
  StatisticsOrigin origin{};
  std::optional<safetensors::FileReader> file{};                   // of octavo
  std::map<std::string, ModuleStatistics, std::less<>> modules{};  // of an imatrix file
  std::map<std::string, std::int64_t, std::less<>> widths{};
  std::vector<std::string> notes{};
  bool has_old_fingerprint = false;

  [[noreturn]] void fail_on(const TensorEntry& tensor, std::string_view wanted) const {
    fail(ErrorCode::invalid_argument, kOp, "'", shown(path, 400), "' has a tensor '",
         shown(tensor.name, 160), "' that is not ", wanted,
         "; expected what octavo calibrate writes; make the file again");
  }

  template <typename T>
  [[nodiscard]] std::vector<T> values(const TensorEntry& tensor, StoredType type) const {
    if (tensor.type != type) fail_on(tensor, safetensors::stored_name(type));
    std::vector<T> out(tensor.nbytes() / sizeof(T));
    file->read(tensor, 0, std::as_writable_bytes(std::span(out)));
    return out;
  }
  [[nodiscard]] std::vector<float> floats_of(std::string_view module,
                                             std::string_view suffix) const {
    const TensorEntry* const tensor = file->find(text(module, suffix));
    return tensor == nullptr ? std::vector<float>() : values<float>(*tensor, StoredType::f32);
  }

  void check_has(std::string_view module) const {
    check(widths.contains(module), ErrorCode::invalid_argument, kOp, "'", shown(path, 400),
          "' has nothing about '", shown(module, 160), "'; expected statistics of this model");
  }

  void open(const std::string& at) {
    path = at;
    if (gguf::is_gguf(path)) return take(read_imatrix_gguf(path));
    if (!is_safetensors(path) && std::filesystem::is_regular_file(path))
      return take(read_imatrix_binary(path));
    file.emplace(path);
    const safetensors::Header& header = file->header();
    check(metadata_of(header, "format") == kStatisticsFormat, ErrorCode::invalid_argument, kOp, "'",
          shown(path, 400),
          "' is a safetensors file, but no statistics; expected one of octavo "
          "calibrate");
    check(metadata_of(header, "version") == kStatisticsVersion, ErrorCode::unsupported, kOp, "'",
          shown(path, 400), "' has version '", shown(metadata_of(header, "version")),
          "' of statistics; expected ", kStatisticsVersion, "; make the file again");
    origin.model = metadata_of(header, "model");
    origin.fingerprint = parse_hex(metadata_of(header, "model_fingerprint")).value_or(0);
    has_old_fingerprint =
        metadata_of(header, kFingerprintVersionKey) != std::to_string(kFingerprintVersion);
    origin.made_by = metadata_of(header, "made_by");
    const std::string_view tokens = metadata_of(header, "tokens");
    std::from_chars(tokens.data(), tokens.data() + tokens.size(), origin.tokens);
    const std::string_view texts = metadata_of(header, "texts");
    const Json listed = texts.empty() ? Json() : parse_json(texts, path);
    for (const Json& one : listed.elements()) origin.texts.emplace_back(one.string_or(""));
    for (const TensorEntry& tensor : header.tensors) check_tensor(tensor);
  }

  void take(ModelStatistics all) {
    origin = std::move(all.origin);
    notes = std::move(all.notes);
    for (ModuleStatistics& one : all.modules) {
      widths[one.module] = static_cast<std::int64_t>(one.mean_square.size());
      modules[one.module] = std::move(one);
    }
  }

  // Shapes that belong together, so that what is read can be used without looking again.
  void check_tensor(const TensorEntry& tensor) {
    const std::string_view name = tensor.name;
    if (!name.ends_with(kMeanSquare)) return;
    const std::string_view module = name.substr(0, name.size() - kMeanSquare.size());
    if (tensor.shape.size() != 1) fail_on(tensor, "of one dimension");
    const std::uint64_t width = tensor.shape[0], block = kHessianBlock;
    const auto check_shape = [&](std::string_view suffix, const std::vector<std::uint64_t>& shape) {
      const TensorEntry* const other = file->find(text(module, suffix));
      if (other != nullptr && other->shape != shape) fail_on(*other, "as wide as the module");
    };
    check_shape(kAmax, {width});
    check_shape(kRows, {1});
    check_shape(kBlockHessians, {(width + block - 1) / block, block, block});
    check_shape(kHessian, {width, width});
    widths[std::string(module)] = static_cast<std::int64_t>(width);
  }

  // Names of the tensors with this ending, without it.
  [[nodiscard]] std::vector<std::string> with(std::string_view suffix) const {
    std::vector<std::string> names;
    if (file)
      for (const TensorEntry& tensor : file->header().tensors)
        if (std::string_view(tensor.name).ends_with(suffix))
          names.push_back(tensor.name.substr(0, tensor.name.size() - suffix.size()));
    std::sort(names.begin(), names.end());
    return names;
  }
};

StatisticsFile::StatisticsFile(const std::string& path) {
  auto state = std::make_unique<State>();
  state->open(path);
  state_ = std::move(state);
}
StatisticsFile::~StatisticsFile() = default;
StatisticsFile::StatisticsFile(StatisticsFile&&) noexcept = default;
StatisticsFile& StatisticsFile::operator=(StatisticsFile&&) noexcept = default;

const std::string& StatisticsFile::path() const { return state_->path; }
const StatisticsOrigin& StatisticsFile::origin() const { return state_->origin; }
const std::vector<std::string>& StatisticsFile::notes() const { return state_->notes; }

std::vector<std::string> StatisticsFile::modules() const {
  std::vector<std::string> names;
  for (const auto& [name, width] : state_->widths) names.push_back(name);
  return names;
}

std::int64_t StatisticsFile::width(std::string_view module) const {
  const auto at = state_->widths.find(module);
  return at == state_->widths.end() ? -1 : at->second;
}

std::int64_t StatisticsFile::rows(std::string_view module) const {
  state_->check_has(module);
  if (!state_->file) return state_->modules.find(module)->second.rows;
  const TensorEntry* const rows = state_->file->find(text(module, kRows));
  return rows == nullptr ? 0 : state_->values<std::int64_t>(*rows, StoredType::i64)[0];
}

std::vector<float> StatisticsFile::amax(std::string_view module) const {
  state_->check_has(module);
  return state_->file ? state_->floats_of(module, kAmax)
                      : state_->modules.find(module)->second.amax;
}

std::vector<float> StatisticsFile::mean_square(std::string_view module) const {
  state_->check_has(module);
  return state_->file ? state_->floats_of(module, kMeanSquare)
                      : state_->modules.find(module)->second.mean_square;
}

ModuleStatistics StatisticsFile::read(std::string_view module) const {
  state_->check_has(module);
  if (!state_->file) return state_->modules.find(module)->second;
  return {.module = std::string(module),
          .rows = rows(module),
          .amax = amax(module),
          .mean_square = mean_square(module),
          .block_hessians = state_->floats_of(module, kBlockHessians),
          .hessian = state_->floats_of(module, kHessian)};
}

std::vector<CacheStatistics> StatisticsFile::caches() const {
  std::vector<CacheStatistics> out;
  for (const std::string& module : state_->with(kKeys))
    out.push_back({.module = module,
                   .k_amax = state_->floats_of(module, kKeys),
                   .v_amax = state_->floats_of(module, kValues)});
  return out;
}

std::vector<RoutingStatistics> StatisticsFile::routings() const {
  std::vector<RoutingStatistics> out;
  for (const std::string& module : state_->with(kExpertTokens))
    out.push_back({.module = module,
                   .tokens = state_->values<std::int64_t>(
                       *state_->file->find(text(module, kExpertTokens)), StoredType::i64)});
  return out;
}

void StatisticsFile::check_model(std::string_view model, std::uint64_t fingerprint) const {
  const StatisticsOrigin& origin = state_->origin;
  check(origin.fingerprint == 0 || !state_->has_old_fingerprint, ErrorCode::invalid_argument, kOp,
        "'", shown(state_->path, 400), "' knows its model '", shown(origin.model, 200),
        "' by names and shapes alone, as files of an older octavo do; expected a fingerprint of "
        "version ",
        kFingerprintVersion, ", which tells models of one shape apart; run octavo calibrate again");
  check(origin.fingerprint == 0 || origin.fingerprint == fingerprint, ErrorCode::invalid_argument,
        kOp, "'", shown(state_->path, 400), "' has the statistics of '", shown(origin.model, 200),
        "' (", hex_of(origin.fingerprint), "), and '", shown(model, 200), "' (",
        hex_of(fingerprint),
        ") is another model; expected those of this one; run octavo calibrate "
        "on it");
}

}  // namespace octavo
