// Rules on scale values. All scales are read: there are few of them.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/nvfp4_divisor_internal.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/verify/verify_internal.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo {

using safetensors::StoredType;

float stored_number(const std::byte* bytes, StoredType type) {
  std::uint32_t word = 0;
  for (int i = stored_bits(type) / 8; i-- > 0;)
    word = word << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  switch (type) {
    case StoredType::f32:
      return std::bit_cast<float>(word);
    case StoredType::bf16:
      return static_cast<float>(decode(bf16_format, word));
    case StoredType::f16:
      return static_cast<float>(decode(f16_format, word));
    case StoredType::f8_e4m3:
      return static_cast<float>(decode(e4m3fn, word));
    default:
      return static_cast<float>(decode(e8m0fnu, word));
  }
}

std::vector<float> scale_numbers(const VerifyView& view, const VerifiedWeight& weight) {
  const StoredTensor& stored = view.checkpoint.at(weight.scales->plan.name);
  std::vector<std::byte> bytes(stored.nbytes());
  if (!bytes.empty()) view.checkpoint.read(stored, 0, bytes);
  const StoredType type = stored.entry->type;
  const auto size = static_cast<std::size_t>(stored_bits(type) / 8);
  std::vector<float> out(bytes.size() / size);
  if (size == 1) {  // there may be one per sixteen weights: a lookup table
    std::array<float, 256> numbers{};
    for (unsigned code = 0; code < numbers.size(); ++code) {
      const auto byte = static_cast<std::byte>(code);
      numbers[code] = stored_number(&byte, type);
    }
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = numbers[std::to_integer<std::size_t>(bytes[i])];
    return out;
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = stored_number(&bytes[i * size], type);
  return out;
}

namespace {

std::vector<ScaleCount> counted_bytes(const VerifyView& view, const StoredTensor& stored) {
  constexpr std::uint64_t kWindow = 1U << 20;
  // Neighbours are often equal: in tables of their own they do not wait for each other.
  constexpr std::size_t kTables = 4;
  std::array<std::array<std::int64_t, 256>, kTables> counts{};
  std::vector<std::byte> window(std::min(stored.nbytes(), kWindow));
  for (std::uint64_t at = 0; at < stored.nbytes(); at += window.size()) {
    const auto piece =
        std::span(window).first(std::min<std::uint64_t>(window.size(), stored.nbytes() - at));
    view.checkpoint.read(stored, at, piece);
    std::size_t i = 0;
    for (; i + kTables <= piece.size(); i += kTables)
      for (std::size_t t = 0; t < kTables; ++t)
        ++counts[t][std::to_integer<std::size_t>(piece[i + t])];
    for (; i < piece.size(); ++i) ++counts[0][std::to_integer<std::size_t>(piece[i])];
  }
  std::vector<ScaleCount> found;
  for (unsigned code = 0; code < 256; ++code) {
    std::int64_t count = 0;
    for (const auto& table : counts) count += table[code];
    const auto byte = static_cast<std::byte>(code);
    if (count > 0) found.push_back({stored_number(&byte, stored.entry->type), count});
  }
  return found;
}

}  // namespace

std::vector<ScaleCount> scale_counts(const VerifyView& view, const VerifiedWeight& weight) {
  const StoredTensor& stored = view.checkpoint.at(weight.scales->plan.name);
  if (stored_bits(stored.entry->type) == 8) {
    if (!weight.counts) weight.counts = counted_bytes(view, stored);
    return *weight.counts;
  }
  std::vector<ScaleCount> found;
  for (const float scale : scale_numbers(view, weight)) found.push_back({scale, 1});
  return found;
}

float second_level(const VerifyView& view, const VerifiedWeight& weight) {
  if (weight.tensor_scale == nullptr) return 1.0F;
  const StoredTensor& stored = view.checkpoint.at(weight.tensor_scale->plan.name);
  const auto size = static_cast<std::uint64_t>(stored_bits(stored.entry->type) / 8);
  if (stored.nbytes() < size || size > 4) return std::nanf("");
  std::array<std::byte, 4> bytes{};
  view.checkpoint.read(stored, 0, std::span(bytes).first(size));
  const float number = stored_number(bytes.data(), stored.entry->type);
  return weight.tensor_scale->divisor ? multiplier_of(number, weight.found->weight.source) : number;
}

static std::string bad_scales_text(std::int64_t bad, std::int64_t negative) {
  const auto are = [](std::int64_t count) {
    return counted(count, "scale") + (count == 1 ? " is" : " are");
  };
  std::string out;
  if (bad > 0) out = are(bad) + " not finite: the source had NaN or Inf, or they were damaged";
  if (negative > 0)
    out += text(bad > 0 ? "; " : "", are(negative),
                " negative, which no quantizer writes: they were damaged, or are no scales");
  return out;
}

void check_scale_numbers(const VerifyView& view, Findings& out) {
  check_static_scales(view, StaticFault::number, out);
  // vLLM requantizes fused per-tensor weights to one scale through FP16; below this limit codes
  // change.
  constexpr float kTiny = 2e-5F;
  for (const VerifiedWeight& weight : view.weights) {
    const std::string& name = weight.scales->plan.name;
    const float second = second_level(view, weight);
    const bool bad_second = !std::isfinite(second) || !(second > 0);
    std::int64_t bad = 0, negative = 0, tiny = 0;
    for (const auto& [scale, count] : scale_counts(view, weight)) {
      bad += !std::isfinite(scale) ? count : 0;
      negative += scale < 0 ? count : 0;
      tiny += scale < kTiny ? count : 0;
    }
    if (bad + negative > 0 || bad_second)
      out.error({kV, kH, kS, kT}, name,
                bad_second ? text("the second level is ", second, "; expected a positive number")
                           : bad_scales_text(bad, negative));
    else if (weight.scheme == Scheme::fp8_tensor && tiny > 0 &&
             !fusion_key(weight.found->weight.module).empty())
      out.warn({kV}, name,
               "it passes fused per-tensor weights through FP16, and with a scale below 2e-5 codes "
               "change; use fp8-channel or fp8-block");
  }
}

void check_scale_bf16(const VerifyView& view, Findings& out) {
  if (view.recognized.dialect != Dialect::compressed_tensors) return;
  for (const VerifiedWeight& weight : view.weights) {
    if (weight.scales->plan.type != StoredType::f32) continue;
    std::int64_t lost = 0;
    for (const float scale : scale_numbers(view, weight))
      lost += std::isfinite(scale) && (std::bit_cast<std::uint32_t>(scale) & 0xFFFF) != 0 ? 1 : 0;
    if (lost > 0)
      out.warn({kH}, weight.scales->plan.name,
               text(counted(lost, "scale"), lost == 1 ? " is" : " are",
                    " rounded when it casts them to bf16; quantize with scales rounded to bf16"));
  }
}

void check_scale_powers(const VerifyView& view, Findings& out) {
  if (view.words["scale_fmt"].string_or("") != "ue8m0") return;
  for (const VerifiedWeight& weight : view.weights) {
    if (weight.scales->plan.type != StoredType::f32) continue;
    for (const float scale : scale_numbers(view, weight)) {
      int exponent = 0;
      if (!std::isfinite(scale) || std::frexp(scale, &exponent) == 0.5F) continue;
      out.error(
          {kV, kH, kS, kT}, weight.scales->plan.name,
          text("config.json says \"scale_fmt\": \"ue8m0\", and ", scale, " is no power of two"));
      break;
    }
  }
}

void check_fused_scales(const VerifyView& view, Findings& out) {
  struct First {
    float scale;
    std::string module;
  };
  std::map<std::string, First> groups;
  for (const VerifiedWeight& weight : view.weights) {
    const bool two_levels = weight.tensor_scale != nullptr;
    const std::string& module = weight.found->weight.module;
    const std::string key = fusion_key(module);
    if (key.empty() || (weight.scheme != Scheme::fp8_tensor && !two_levels)) continue;
    // Servers keep one scale per expert; only fused parts within an expert share one.
    const std::string own = key.find('*') == std::string::npos
                                ? key
                                : module.substr(0, module.rfind('.')) + key.substr(key.rfind('.'));
    const std::vector<float> scales =
        two_levels ? std::vector<float>{second_level(view, weight)} : scale_numbers(view, weight);
    if (scales.empty()) continue;
    const auto [found, is_first] = groups.insert({own, {scales[0], module}});
    if (is_first || found->second.scale == scales[0]) continue;
    const std::string message =
        text("its scale is ", scales[0], " and that of '", shown(found->second.module, 160), "' ",
             found->second.scale, ", and servers make one matrix of both; share scales");
    if (two_levels) {
      out.error({kV, kS, kT}, module, message + " (the largest counts, codes stay)");
    } else {
      out.warn({kV, kS}, module, message + " (codes are rounded a second time)");
      out.error({kT}, module, message);
    }
  }
}

}  // namespace octavo
