// Data-oblivious check of casts with factors under valgrind: values and codes are hidden. Factors
// are the caller's: their range says which arithmetic is used, and so they are not hidden.
#include "checker.h"
#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"
#include "octavo/quant/scaled_convert.h"
#include "octavo/round/policy_names.h"

namespace octavo::oblivious {
namespace {

constexpr std::int64_t kRows = 7, kCols = 43;
constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// A number that f32 holds, one that it does not, one for each row and one for each column.
struct Given {
  std::string name;
  Factor factor;
};

void check_format(Checker& checker, const Kernels& kernels, const Format& format, DType dtype,
                  const Given& given) {
  const Tensor values = Tensor::values({kRows, kCols}, dtype);
  std::vector<std::uint8_t> codes(
      static_cast<std::size_t>(kRows * kCols * (format.code_bytes() == 2 ? 2 : 1)));
  const View code = code_view(codes.data(), format, {kRows, kCols});
  const auto name = [&](const char* way, std::string_view how) {
    return text(kernels.name, ": ", way, " ", dtype_name(dtype), ", ", format_name(format), ", ",
                how, ", factor ", given.name);
  };
  fill(bytes_of(values), 3);
  for (const Rounding rounding : {Rounding::nearest_even, Rounding::up, Rounding::stochastic})
    for (const bool counting : {false, true}) {
      Counts counts;
      checker.judge(name("encode_scaled", name_of(rounding)), {bytes_of(values)}, {codes}, [&] {
        encode_scaled(values.view(), code, given.factor,
                      {.rounding = rounding, .nan_input = NanInput::zero},
                      {.threads = 1, .counts = counting ? &counts : nullptr, .backend = &kernels});
      });
      reveal(&counts, sizeof counts);
    }
  fill(codes, 4);
  for (const DecodeBy by : {DecodeBy::scale, DecodeBy::inv_scale})
    checker.judge(name("decode_scaled", by == DecodeBy::scale ? "scale" : "inv_scale"), {codes},
                  {bytes_of(values)}, [&] {
                    decode_scaled(code, values.view(), given.factor, by,
                                  {.threads = 1, .backend = &kernels});
                  });
}

}  // namespace

void check_scaled(Checker& checker, const Kernels& kernels) {
  if (kernels.encode_scaled == nullptr) return;
  std::vector<float> rows(kRows, 1.5F);
  std::vector<double> cols(kCols, 0.7);
  const Given all_given[] = {
      {"3", {.value = 3.0}},
      {"0.3", {.value = 0.3}},
      {"of rows", {.each = value_view(rows.data(), DType::f32, {kRows, 1})}},
      {"of columns", {.each = value_view(cols.data(), DType::f64, {kCols})}}};
  // e11m4 has steps so small that products are made in integers.
  for (const char* format :
       {"e4m3fn", "e5m2", "e3m4", "e0m7", "e4m4fnu", "e2m1fn", "e5m10", "e11m4"})
    for (const DType dtype : kTypes)
      for (const Given& given : all_given)
        check_format(checker, kernels, parse_format(format), dtype, given);
}

}  // namespace octavo::oblivious
