// Every preset and MX rule, from float32 and bfloat16, over blocks of every kind: scales and codes
// of every backend against the oracle, bit for bit, rowwise and columnwise.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/octavo.h"
#include "tests/oracle/quantize_oracle.h"
#include "tests/support/every_backend.h"

namespace octavo {
namespace {

struct Case {
  std::string preset;
  oracle::QuantizeQuestion question;
  ScaleRule rule;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.preset << " " << name_of(one.rule); }

std::vector<Case> all_cases() {
  using oracle::Rule, oracle::Scales;
  std::vector<Case> cases;
  for (const char* element : {"e4m3fn", "e5m2"}) {
    const auto add = [&](const char* preset, std::int64_t rows, std::int64_t cols) {
      cases.push_back({text(preset, ":", element), {element, rows, cols}, ScaleRule::f32});
    };
    add("fp8", 0, 0);
    add("fp8-channel", 1, 0);
    add("fp8-1x128", 1, 128);
    add("fp8-block", 128, 128);
  }
  const struct {
    const char *preset, *element;
  } blocks[] = {{"mxfp8:e4m3fn", "e4m3fn"}, {"mxfp8:e5m2", "e5m2"},     {"mxfp6:e2m3fn", "e2m3fn"},
                {"mxfp6:e3m2fn", "e3m2fn"}, {"mxfp4:e2m1fn", "e2m1fn"}, {"mxint8", "mxint8"}};
  const struct {
    ScaleRule rule;
    Rule wanted;
  } rules[] = {{ScaleRule::rceil, Rule::rceil},
               {ScaleRule::floor, Rule::floor},
               {ScaleRule::ceil, Rule::ceil},
               {ScaleRule::even, Rule::even}};
  for (const auto& [preset, element] : blocks)
    for (const auto& [rule, wanted] : rules)
      cases.push_back({preset, {element, 1, 32, Scales::e8m0, wanted}, rule});
  cases.push_back({"nvfp4", {"e2m1fn", 1, 16, Scales::e4m3_f32}, ScaleRule::f32});
  return cases;
}

constexpr const char* kKinds[] = {"normal",    "log-normal", "outlier",  "zero",
                                  "subnormal", "near-max",   "NaN",      "Inf",
                                  "ties",      "all bits",   "a mixture"};

// float32 bits of one kind.
std::vector<std::uint32_t> inputs(std::size_t kind, std::int64_t n) {
  std::mt19937 random(static_cast<unsigned>(kind) * 77 + 5);
  std::normal_distribution<double> normal;
  std::vector<std::uint32_t> out;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::size_t now = kind + 1 < std::size(kKinds)
                                ? kind
                                : static_cast<std::size_t>(i / 16 * 7) % (std::size(kKinds) - 1);
    const std::uint32_t draw = static_cast<std::uint32_t>(random()), sign = draw & 0x80000000u;
    const double body = normal(random);
    const auto bits = [](double x) { return std::bit_cast<std::uint32_t>(static_cast<float>(x)); };
    switch (now) {
      case 0:
        out.push_back(bits(body));
        break;
      case 1:
        out.push_back(bits(std::exp2(9 * body)) | sign);
        break;
      case 2:
        out.push_back(bits(draw % 61 == 0 ? 4000 * body : 0.02 * body));
        break;
      case 3:
        out.push_back(sign);
        break;
      case 4:
        out.push_back(sign | (draw >> 3 & 0x7FFFFFu) >> (i / 32 % 24));
        break;
      case 5:
        out.push_back(sign | (0x7F7FFFFFu - (draw & 0xFFFFFFu)));
        break;
      case 6:
        out.push_back(i % 71 == 9 ? 0x7F800001u | draw : bits(body));
        break;
      case 7:
        out.push_back(i % 71 == 9 ? 0x7F800000u | sign : bits(body));
        break;
      case 8:  // few bits, with the largest values of formats among them
        out.push_back(bits(std::ldexp(draw % 8 == 0 ? 448 : draw >> 4 & 63,
                                      static_cast<int>(i / 32 % 9) - 4)) |
                      sign);
        break;
      default:  // any finite value of a few binades, so that blocks are not all flushed
        out.push_back(sign | (static_cast<std::uint32_t>(i / 32 * 37 % 250 + draw % 5) << 23) |
                      (draw >> 4 & 0x7FFFFFu));
    }
  }
  return out;
}

std::uint32_t element_at(const Tensor& tensor, std::size_t i) {
  const auto bytes = tensor.bytes();
  const std::size_t size = tensor.dtype() == DType::f32 ? 4 : 1;
  std::uint32_t value = 0;
  std::memcpy(&value, &bytes[i * size], size);
  return value;
}

void expect_copy(const QuantizedCopy& got, const oracle::QuantizeAnswer& want, bool two_levels,
                 const std::string& where) {
  if (two_levels) {
    EXPECT_EQ(element_at(got.tensor_scale, 0), want.tensor_scale) << where << ", tensor scale";
  }
  ASSERT_EQ(static_cast<std::size_t>(element_count(got.scales.shape())), want.scales.size());
  for (std::size_t i = 0; i < want.scales.size(); ++i)
    ASSERT_EQ(element_at(got.scales, i), want.scales[i]) << where << ", scale " << i;
  for (std::size_t i = 0; i < want.codes.size(); ++i)
    ASSERT_EQ(element_at(got.codes, i), want.codes[i]) << where << ", code " << i;
}

class EveryQuantize : public testing::TestWithParam<Case> {};

TEST_P(EveryQuantize, AgreesWithOracle) {
  const Case& one = GetParam();
  const oracle::QuantizeOracle wanted(one.question);
  Scaling scaling = preset(one.preset);
  scaling.scale.rule = one.rule;
  scaling.columnwise = true;
  scaling.packed = false;
  const std::int64_t rows = one.question.tile_rows == 128 ? 131 : 37, cols = 150;
  for (std::size_t kind = 0; kind < std::size(kKinds); ++kind) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<std::uint32_t> bits = inputs(kind, rows * cols);
      Tensor tensor = Tensor::values({rows, cols}, dtype);
      std::vector<double> values(bits.size()), transposed(bits.size());
      for (std::size_t i = 0; i < bits.size(); ++i) {
        const bool narrow = dtype == DType::bf16;
        const std::uint32_t kept = narrow ? bits[i] & 0xFFFF0000u : bits[i];
        std::memcpy(tensor.bytes().data() + i * (narrow ? 2 : 4),
                    reinterpret_cast<const char*>(&kept) + (narrow ? 2 : 0), narrow ? 2 : 4);
        values[i] = static_cast<double>(std::bit_cast<float>(kept));
        const auto at = static_cast<std::int64_t>(i);
        transposed[static_cast<std::size_t>(at % cols * rows + at / cols)] = values[i];
      }
      const oracle::QuantizeAnswer rowwise = wanted.quantize(values, rows, cols),
                                   columnwise = wanted.quantize(transposed, cols, rows);
      for (const BackendInfo& backend : support::every_backend()) {
        const std::string where = text(backend.name, ", ", one.preset, " ", name_of(one.rule), ", ",
                                       kKinds[kind], " ", dtype_name(dtype));
        const bool two_levels = one.question.scales == oracle::Scales::e4m3_f32;
        const QuantizedTensor both = quantize(tensor.view(), scaling, {.backend = backend.kernels});
        expect_copy(both.rowwise, rowwise, two_levels, where + ", rowwise");
        expect_copy(both.columnwise, columnwise, two_levels, where + ", columnwise");
        Scaling alone = scaling;
        alone.columnwise = false;
        expect_copy(quantize(tensor.view(), alone, {.backend = backend.kernels}).rowwise, rowwise,
                    two_levels, where + ", rowwise alone");
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryQuantize, testing::ValuesIn(all_cases()), [](const auto& one) {
  std::string name = text(one.param.preset, "_", name_of(one.param.rule));
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

// The oracle's own roundings, against a processor in its default mode.
TEST(QuantizeOracle, RoundsAsTheProcessorDoes) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto draw = [&] {
      return std::bit_cast<float>(static_cast<std::uint32_t>(random()) % 0x7F7FFFFFu + 1);
    };
    const float a = draw(), b = draw();
    EXPECT_EQ(static_cast<float>(oracle::quotient_f32(a, b)), a / b);
    EXPECT_EQ(static_cast<float>(oracle::product_f32(a, b)), a * b);
  }
}

}  // namespace
}  // namespace octavo
