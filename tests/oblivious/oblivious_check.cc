// Are the kernels data-oblivious? memcheck follows every bit that is marked undefined and reports
// each branch and each address that depends on one. So: mark the input undefined, convert it, and
// there must be no report. (Adam Langley's ctgrind had this idea first.)
//
//   oblivious_check kernels    every usable backend, every conversion; exit 1 when one was reported
//   oblivious_check scaled     the same of casts with a factor (oblivious_scaled.cc)
//   oblivious_check quantizing the same of quantize and dequantize (oblivious_quantize.cc)
//   oblivious_check control    functions that misbehave on purpose; exit 1 when one was NOT
//   reported
//
// Both are to be run under valgrind; elsewhere they exit with 77 (skipped). Not checked:
// `reference`, the readable definition, which branches freely; and the search for NaN before a
// format without NaN is written under NanInput::error, whose answer is an exception and so depends
// on the data by nature. Counts are results like codes: adding them up must not branch either.
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checker.h"
#include "oblivious_control.h"
#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/convert/convert.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/policy_names.h"
#include "octavo/round/profile.h"

namespace octavo::oblivious {
namespace {

constexpr int kSkipped = 77;
constexpr std::int64_t kCount = 301;  // whole vectors, and a tail of every kind

struct Layout {
  const char* name;
  Shape shape;
  std::int64_t input_step;  // in elements
  bool packed;              // the codes
};
const Layout kDense{"dense", {kCount}, 1, false};
const Layout kLayouts[] = {
    {"rows", {7, 43}, 1, false}, {"strided", {7, 43}, 2, false}, {"packed", {7, 43}, 1, true}};

// A view of the kind asked for over fresh bytes.
View make_view(std::vector<std::uint8_t>& bytes, DType dtype, const Format& format,
               const Layout& layout, bool is_input) {
  const bool packed = layout.packed && dtype == DType::code && format.bits() < 8;
  const std::int64_t step = is_input && !packed ? layout.input_step : 1;
  bytes.assign(static_cast<std::size_t>(step * dense_bytes(layout.shape, dtype, format, packed)),
               0);
  View view = dtype == DType::code ? code_view(bytes.data(), format, layout.shape, packed)
                                   : value_view(bytes.data(), dtype, layout.shape);
  for (int i = 0; i < view.strides.rank(); ++i) view.strides[i] *= step;
  return view;
}

std::string kind_name(DType dtype, const Format& format) {
  return dtype == DType::code ? format_name(format) : std::string(dtype_name(dtype));
}

struct Source {
  DType dtype;
  Format format;
};
const std::vector<Source> kSources = {{DType::f64, {}},        {DType::f32, {}},
                                      {DType::f16, {}},        {DType::bf16, {}},
                                      {DType::code, e4m3fnuz}, {DType::code, e2m1fn}};

std::vector<Format> formats() {
  std::vector<Format> all;
  for (const NamedFormat& named : kNamedFormats) all.push_back(named.format);
  for (const char* name : {"e3m3", "e2m2fnuz", "e4m3fnu", "e5m10", "e8m7", "e6m9fn", "e11m4"})
    all.push_back(parse_format(name));
  return all;
}

void check_encode(Checker& checker, const Kernels& kernels, const Source& source,
                  const Format& format, const EncodePolicy& policy, const Layout& layout,
                  const std::string& note) {
  std::vector<std::uint8_t> input, output;
  const View values = make_view(input, source.dtype, source.format, layout, true);
  const View codes = make_view(output, DType::code, format, layout, false);
  fill(input, 1);
  // With and without counts: kernels may have a loop for each.
  for (const bool counting : {false, true}) {
    Counts counts;
    const std::string what =
        text(kernels.name, ": encode ", kind_name(source.dtype, source.format), " -> ",
             format_name(format), ", ", note, ", ", layout.name, counting ? ", counted" : "");
    checker.judge(what, {input}, {output}, [&] {
      encode(values, codes, policy,
             {.threads = 1, .counts = counting ? &counts : nullptr, .backend = &kernels});
    });
    reveal(&counts, sizeof(counts));
  }
}

// In place, over its own input, which a kernel has to read first.
void check_in_place(Checker& checker, const Kernels& kernels, const Source& source,
                    const Format& format) {
  if (format.code_bytes() > element_bytes(source.dtype, source.format)) return;
  std::vector<std::uint8_t> bytes;
  const View values = make_view(bytes, source.dtype, source.format, kDense, true);
  fill(bytes, 3);
  const std::string what = text(kernels.name, ": encode ", kind_name(source.dtype, source.format),
                                " -> ", format_name(format), ", in place");
  checker.judge(what, {bytes}, {bytes}, [&] {
    encode(values, code_view(values.data, format, values.shape), {.nan_input = NanInput::zero},
           {.threads = 1, .backend = &kernels});
  });
}

void check_decode(Checker& checker, const Kernels& kernels, const Format& format, DType dtype,
                  const Layout& layout) {
  std::vector<std::uint8_t> input, output;
  const View codes = make_view(input, DType::code, format, layout, true);
  const View values = make_view(output, dtype, {}, layout, false);
  fill(input, 2);
  const std::string what = text(kernels.name, ": decode ", format_name(format), " -> ",
                                dtype_name(dtype), ", ", layout.name);
  checker.judge(what, {input}, {output},
                [&] { decode(codes, values, {.threads = 1, .backend = &kernels}); });
}

void check_backend(Checker& checker, const Kernels& kernels) {
  constexpr Rounding kRoundings[] = {
      Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero, Rounding::up,
      Rounding::down,         Rounding::to_odd,       Rounding::stochastic};
  constexpr Overflow kOverflows[] = {Overflow::saturate, Overflow::propagate,
                                     Overflow::saturate_finite, Overflow::ieee};
  for (const Format& format : formats()) {
    for (const Source& source : kSources) {
      if (kernels.encode == nullptr) break;
      check_in_place(checker, kernels, source, format);
      for (const Rounding rounding : kRoundings) {
        for (const Overflow overflow : kOverflows) {
          const NanInput nan_input = overflow == Overflow::ieee ? NanInput::max : NanInput::zero;
          check_encode(checker, kernels, source, format,
                       {.rounding = rounding, .overflow = overflow, .nan_input = nan_input}, kDense,
                       text(name_of(rounding), ", ", name_of(overflow)));
        }
      }
      for (const std::string& name : profile_names()) {
        EncodePolicy policy = profile_policy(parse_profile(name), format);
        if (policy.nan_input == NanInput::error) policy.nan_input = NanInput::negated_zero;
        check_encode(checker, kernels, source, format, policy, kDense, "profile " + name);
      }
      for (const Layout& layout : kLayouts) {
        check_encode(checker, kernels, source, format, {.nan_input = NanInput::zero}, layout,
                     "nearest_even, saturate");
      }
    }
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      if (kernels.decode == nullptr) break;
      check_decode(checker, kernels, format, dtype, kDense);
      for (const Layout& layout : kLayouts) check_decode(checker, kernels, format, dtype, layout);
    }
  }
}

int run_kernels(void (*check)(Checker&, const Kernels&)) {
  int bad = 0, judged = 0;
  for (const BackendInfo& backend : backends()) {
    if (backend.kernels == nullptr || !backend.usable) {
      std::printf("%s: not run (%s)\n", backend.name.c_str(), backend.reason.c_str());
    } else if (backend.kernels == &reference_backend()) {
      std::printf("%s: exempt, it defines and does not hide\n", backend.name.c_str());
    } else {
      Checker checker;
      check(checker, *backend.kernels);
      std::printf("%s: %d cases, %d bad\n", backend.name.c_str(), checker.cases(), checker.bad());
      std::fflush(stdout);
      bad += checker.bad();
      judged += checker.cases();
    }
  }
  if (judged == 0) std::printf("no backend was judged\n");
  return bad > 0 || judged == 0 ? 1 : 0;
}

int run_control() {
  using Function = void (*)(std::span<const std::uint32_t>, std::uint8_t*);
  const struct {
    const char* name;
    Function function;
    bool guilty;
  } controls[] = {{"branch_on_value", &branch_on_value, true},
                  {"look_up_value", &look_up_value, true},
                  {"stop_at_value", &stop_at_value, true},
                  {"select_by_mask", &select_by_mask, false}};
  int wrong = 0;
  for (const auto& [name, function, guilty] : controls) {
    std::vector<std::uint32_t> input(kCount, 0x3F800000u);
    std::vector<std::uint8_t> output(kCount);
    hide(input.data(), input.size() * sizeof(input[0]));
    const unsigned before = reports();
    function(input, output.data());
    const unsigned found = reports() - before;
    reveal(output.data(), output.size());
    const bool right = (found > 0) == guilty;
    std::printf("%s: %u reports, %s\n", name, found, right ? "as it should be" : "WRONG");
    wrong += right ? 0 : 1;
  }
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace octavo::oblivious

int main(int argc, char** argv) {
  using namespace octavo::oblivious;
  const std::string_view mode = argc == 2 ? argv[1] : "";
  constexpr std::pair<std::string_view, void (*)(Checker&, const octavo::Kernels&)> kModes[] = {
      {"kernels", &check_backend},       {"scaled", &check_scaled},
      {"quantizing", &check_quantizing}, {"products", &check_products},
      {"operations", &check_operations}, {"attention", &check_attention}};
  const auto* const known =
      std::ranges::find(kModes, mode, [](const auto& one) { return one.first; });
  if (known == std::end(kModes) && mode != "control") {
    std::fprintf(stderr,
                 "usage: valgrind oblivious_check kernels|scaled|quantizing|products|operations|"
                 "attention|control\n");
    return 2;
  }
  if (!watched()) {
    std::printf("skipped: not under valgrind, or built without valgrind/memcheck.h\n");
    return kSkipped;
  }
  return known != std::end(kModes) ? run_kernels(known->second) : run_control();
}
