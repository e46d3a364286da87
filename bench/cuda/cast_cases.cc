// Casts: the common formats and roundings, held to the copy rate, then all others.
#include "bench/cuda/lab.h"
#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/policy_names.h"

namespace octavo::bench {
namespace {

constexpr double kCastBar = 0.95, kOtherBar = 0.6;
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

EncodePolicy with(Rounding rounding) {
  return {.rounding = rounding, .nan_input = NanInput::zero, .seed = 1};
}

std::function<Work(Lab&)> encoding(DType from, const Format& format, const EncodePolicy& policy,
                                   bool packed = false, bool counted = false) {
  return [=](Lab& lab) {
    Work work;
    const Matrix values = lab.values(from);
    const Matrix codes = Lab::matrix(DType::code, format, packed, lab.rows, lab.cols, work.keep);
    Counts* counts = nullptr;
    if (counted) {
      work.keep.push_back(Lab::buffer(sizeof(Counts)));
      counts = static_cast<Counts*>(work.keep.back()->data());
      must(cudaMemsetAsync(counts, 0, sizeof(Counts), lab.stream()), "clear");
    }
    work.bytes = bytes_of(values) + bytes_of(codes);
    work.run = [=, entry = lab.entry(&Kernels::encode)](const Exec& exec) {
      entry(exec, values, codes, policy, counts);
    };
    return work;
  };
}

std::function<Work(Lab&)> decoding(const Format& format, DType to, bool packed = false) {
  return [=](Lab& lab) {
    Work work;
    const Matrix codes = Lab::matrix(DType::code, format, packed, lab.rows, lab.cols, work.keep);
    const Matrix values = Lab::matrix(to, {}, false, lab.rows, lab.cols, work.keep);
    lab.entry (&Kernels::encode)(lab.exec(), lab.values(DType::bf16), codes,
                                 with(Rounding::nearest_even), nullptr);
    work.bytes = bytes_of(values) + bytes_of(codes);
    work.run = [=, entry = lab.entry(&Kernels::decode)](const Exec& exec) {
      entry(exec, codes, values);
    };
    return work;
  };
}

}  // namespace

std::vector<Case> cast_cases() {
  std::vector<Case> all;
  const auto add = [&](const char* group, std::string name, double bar,
                       std::function<Work(Lab&)> make) {
    all.push_back({group, std::move(name), bar, std::move(make)});
  };
  const auto arrow = [](auto from, auto to) { return text(from, " -> ", to); };
  for (const NamedFormat& named : {kNamedFormats[0], kNamedFormats[1]}) {  // e4m3fn and e5m2
    for (const DType type : kTypes) {
      add("cast", arrow(dtype_name(type), named.name), kCastBar,
          encoding(type, named.format, with(Rounding::nearest_even)));
      add("cast", arrow(named.name, dtype_name(type)), kCastBar, decoding(named.format, type));
    }
  }
  std::vector<std::pair<std::string, Format>> others;
  for (const NamedFormat& named : kNamedFormats)
    if (named.format != e4m3fn && named.format != e5m2)
      others.emplace_back(named.name, named.format);
  for (const char* name : {"e3m3", "e5m10", "e6m9fn"})
    others.emplace_back(name, parse_format(name));
  for (const auto& [name, format] : others) {
    add("format", arrow("bfloat16", name), kOtherBar,
        encoding(DType::bf16, format, with(Rounding::nearest_even)));
    add("format", arrow(name, "bfloat16"), kOtherBar, decoding(format, DType::bf16));
    if (format.bits() >= 8) continue;
    add("format", arrow("bfloat16", name + " packed"), kOtherBar,
        encoding(DType::bf16, format, with(Rounding::nearest_even), true));
    add("format", arrow(name + " packed", "bfloat16"), kOtherBar,
        decoding(format, DType::bf16, true));
  }
  for (const NamedFormat& named : {kNamedFormats[0], kNamedFormats[1]}) {
    for (const DType type : {DType::bf16, DType::f32}) {
      for (const Rounding rounding : {Rounding::nearest_away, Rounding::toward_zero, Rounding::up,
                                      Rounding::down, Rounding::to_odd, Rounding::stochastic})
        add("rounding", arrow(dtype_name(type), text(named.name, " ", name_of(rounding))),
            kOtherBar, encoding(type, named.format, with(rounding)));
    }
  }
  for (const Overflow overflow : {Overflow::propagate, Overflow::saturate_finite, Overflow::ieee}) {
    EncodePolicy policy = with(Rounding::nearest_even);
    policy.overflow = overflow;
    add("rounding", text("bfloat16 -> e4m3fn ", name_of(overflow)), kOtherBar,
        encoding(DType::bf16, e4m3fn, policy));
  }
  add("rounding", "bfloat16 -> e4m3fn counted", kOtherBar,
      encoding(DType::bf16, e4m3fn, with(Rounding::nearest_even), false, true));
  return all;
}

}  // namespace octavo::bench
