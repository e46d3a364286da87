// Scaled conversions against the oracle: values times factors, the exact product rounded once, on
// every backend. Products change their code at grid values and midpoints, so inputs are those marks
// divided by the factor and their neighbours.
#include <cfloat>
#include <random>

#include "octavo/quant/scaled_convert.h"
#include "tests/exact/exact_harness.h"

namespace exact {
namespace {

// Exact in f32 or not, powers of two or not. 1.0542635917663574 makes products that f32 rounds to
// midpoints.
constexpr double kFactors[] = {
    1.0, 0x1p-20, 3.0, 1.0542635917663574, 0.3, 1e6, 7.123456789012345e-5};

// Elements that are multiplied by one factor each.
struct Scaled {
  Inputs inputs;
  std::vector<double> factors;
};

void add_value(Inputs& inputs, double value) {
  switch (inputs.dtype) {
    case DType::f32:
      return inputs.add(static_cast<float>(value));
    case DType::f64:
      return inputs.add(value);
    case DType::f16: {
      static const oracle::Oracle kF16(oracle::row_named("e5m10"));
      const auto bits =
          static_cast<std::uint16_t>(kF16.encode(value, {.overflow = Overflow::ieee}).code);
      return inputs.add(bits, oracle::value_of_f16(bits));
    }
    default: {
      std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(value)) & 0xFFFF0000u;
      return inputs.add(static_cast<std::uint16_t>(bits >> 16),
                        static_cast<double>(std::bit_cast<float>(bits)));
    }
  }
}

Scaled make_inputs(const oracle::Oracle& oracle, DType dtype, double factor) {
  Scaled made{.inputs = {.dtype = dtype, .bytes = {}, .values = {}}, .factors = {}};
  const std::vector<double> marks = oracle.landmarks();
  const std::size_t step = marks.size() / 400 + 1;  // 16-bit formats have very many
  const auto both_signs = [&](double value) {
    add_value(made.inputs, value);
    add_value(made.inputs, -value);
  };
  for (std::size_t i = 0; i < marks.size(); i += step) {
    const double near = marks[i] / factor;
    if (dtype == DType::f64) {
      for (const double value : {std::nextafter(near, 0.0), near, std::nextafter(near, 1e300)})
        both_signs(value);
    } else {
      const auto at = static_cast<float>(near);
      for (const float value : {std::nextafter(at, 0.0F), at, std::nextafter(at, INFINITY)})
        both_signs(value);
      if (dtype != DType::f32) both_signs(near * (1 + 0x1p-7));
    }
  }
  for (const double value : {0.0, 1e-45, 1.2e-38, 3e38, double{INFINITY}}) both_signs(value);
  std::mt19937 random(20240229);
  for (int i = 0; i < 300; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const auto value = std::bit_cast<float>(bits);
    if (value == value) add_value(made.inputs, value);
  }
  add_value(made.inputs, std::numeric_limits<double>::quiet_NaN());
  add_value(made.inputs, -std::numeric_limits<double>::quiet_NaN());
  while (made.inputs.count() % 8 != 0) add_value(made.inputs, 1.0);
  made.factors.assign(static_cast<std::size_t>(made.inputs.count()), factor);
  return made;
}

oracle::Place place_of(const oracle::Oracle& oracle, double value, double factor) {
  if (value != value || std::isinf(value) || value == 0) return oracle.locate(value);
  return oracle.locate(oracle::Exact::product(value, factor), std::signbit(value));
}

class Question {
 public:
  Question(const oracle::Oracle& oracle, const Scaled& scaled) : oracle_(oracle), scaled_(scaled) {
    for (std::size_t i = 0; i < scaled.factors.size(); ++i)
      places_.push_back(place_of(oracle, scaled.inputs.values[i], scaled.factors[i]));
  }

  // On every backend, with the factors as the caller gives them.
  void holds(const EncodePolicy& policy, const Factor& factor, bool counted) const {
    const Format format = parse_format(oracle_.row().name);
    const std::int64_t n = scaled_.inputs.count();
    const bool wide = format.code_bytes() == 2,
               draws_bits = policy.rounding == Rounding::stochastic;
    const Shape shape{n / 8, 8};
    View values = scaled_.inputs.view();
    values.shape = shape;
    values.strides = dense_strides(shape, values.dtype, {}, false);
    for (const BackendInfo& backend : every_backend()) {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n) * (wide ? 2 : 1));
      Counts counts{-1, -1, -1}, want{};
      encode_scaled(values, code_view(bytes.data(), format, shape), factor, policy,
                    {.counts = counted ? &counts : nullptr, .backend = backend.kernels});
      for (std::size_t i = 0; i < places_.size(); ++i) {
        const oracle::Result result = oracle_.choose(
            places_[i], policy, draws_bits ? draws(policy.stochastic_bits, places_.size())[i] : 0);
        want += {result.saturated, result.flushed, result.nan};
        const std::uint32_t got = wide ? bytes[2 * i] | bytes[2 * i + 1] << 8 : bytes[i];
        ASSERT_EQ(got, result.code)
            << backend.name << " " << dtype_name(values.dtype) << "->" << oracle_.row().name << " "
            << name_of(policy.rounding) << ", " << std::hexfloat << scaled_.inputs.values[i]
            << " * " << scaled_.factors[i];
      }
      if (counted) {
        ASSERT_EQ(counts, want) << backend.name << " " << oracle_.row().name << " "
                                << name_of(policy.rounding) << " counts";
      }
    }
  }

 private:
  const oracle::Oracle& oracle_;
  const Scaled& scaled_;
  std::vector<oracle::Place> places_;
};

using ScaledExact = EveryFormat;

TEST_P(ScaledExact, OneFactor) {
  const oracle::Oracle oracle(GetParam());
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const double factor : kFactors) {
      const Scaled scaled = make_inputs(oracle, dtype, factor);
      const Question question(oracle, scaled);
      for (const Rounding rounding : kRoundings) {
        question.holds(policy_of(rounding, Overflow::saturate), {.value = factor},
                       rounding != Rounding::nearest_away);
        if (HasFatalFailure()) return;
      }
      question.holds(policy_of(Rounding::nearest_even, Overflow::propagate), {.value = factor},
                     false);
      question.holds(policy_of(Rounding::nearest_even, Overflow::ieee), {.value = factor}, false);
      if (HasFatalFailure()) return;
    }
  }
}

// A factor for each row, column or element, in both types.
TEST_P(ScaledExact, ManyFactors) {
  if (GetParam().bits() > 8) GTEST_SKIP() << "the same kernels as with one factor";
  const oracle::Oracle oracle(GetParam());
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Scaled scaled = make_inputs(oracle, dtype, 0.75);
    const std::int64_t n = scaled.inputs.count(), rows = n / 8;
    for (const Shape& shape : {Shape{rows, 1}, Shape{8}, Shape{rows, 8}}) {
      for (const bool narrow : {false, true}) {
        std::vector<float> f32;
        std::vector<double> f64;
        for (std::int64_t i = 0; i < element_count(shape); ++i) {
          const double factor = 0.4 + 0.37 * static_cast<double>(i % 11);
          f32.push_back(static_cast<float>(factor));
          f64.push_back(factor);
        }
        for (std::int64_t i = 0; i < n; ++i) {
          const auto at = static_cast<std::size_t>(shape.rank() == 1 ? i % 8
                                                   : shape[1] == 1   ? i / 8
                                                                     : i);
          scaled.factors[static_cast<std::size_t>(i)] =
              narrow ? static_cast<double>(f32[at]) : f64[at];
        }
        const Factor factor{.each = narrow ? value_view(f32.data(), DType::f32, shape)
                                           : value_view(f64.data(), DType::f64, shape)};
        const Question question(oracle, scaled);
        for (const Rounding rounding : {Rounding::nearest_even, Rounding::up}) {
          question.holds(policy_of(rounding, Overflow::saturate), factor, false);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A type that holds every product of a code and a double, to round to f32 once.
#if LDBL_MANT_DIG >= 113
using Quad = long double;
#else
__extension__ typedef __float128 Quad;
#endif

std::uint64_t rounded_bits(DType target, double value, double factor, bool divide) {
  if (divide) {
    value = value / factor;
    factor = 1.0;
  }
  if (target == DType::f64) return std::bit_cast<std::uint64_t>(value * factor);
  if (target == DType::f32) {
    const Quad product = static_cast<Quad>(value) * static_cast<Quad>(factor);
    return std::bit_cast<std::uint32_t>(static_cast<float>(product));
  }
  static const oracle::Oracle kF16(oracle::row_named("e5m10")), kBf16(oracle::row_named("e8m7"));
  const EncodePolicy once{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  const oracle::Oracle& oracle = target == DType::f16 ? kF16 : kBf16;
  return oracle.choose(place_of(oracle, value, factor), once).code;
}

// How a factor is given: as a number, an array of one or of one for each element.
enum class Given : std::uint8_t { number, f64_row, f64_each, f32_each };

TEST_P(ScaledExact, Decode) {
  const oracle::Oracle oracle(GetParam());
  const Format format = parse_format(GetParam().name);
  const std::size_t step = oracle.meanings().size() > 4096 ? 97 : 1;
  std::vector<std::uint8_t> codes;
  std::vector<double> values;
  for (std::size_t code = 0; code < oracle.meanings().size(); code += step) {
    const oracle::Meaning& meaning = oracle.meanings()[code];
    codes.push_back(static_cast<std::uint8_t>(code));
    if (format.code_bytes() == 2) codes.push_back(static_cast<std::uint8_t>(code >> 8));
    const double nan = std::numeric_limits<double>::quiet_NaN(), inf = INFINITY;
    const double sign = meaning.negative ? -1.0 : 1.0;
    values.push_back(meaning.kind == oracle::Kind::nan   ? std::copysign(nan, sign)
                     : meaning.kind == oracle::Kind::inf ? sign * inf
                                                         : meaning.value);
  }
  const auto n = static_cast<std::int64_t>(values.size());
  for (const DType target : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const auto size = static_cast<std::size_t>(element_bytes(target));
    for (const double wanted : {1.0, 0.3, 3.0, 0x1p-30, 1e6, 1e-39, 1.23456789e-36, 1e35}) {
      for (const bool divide : {false, true}) {
        for (const BackendInfo& backend : every_backend()) {
          for (const Given as : {Given::number, Given::f64_row, Given::f64_each, Given::f32_each}) {
            std::vector<std::byte> out(static_cast<std::size_t>(n) * size);
            std::vector<double> many(values.size(), wanted);
            std::vector<float> narrow(values.size(), static_cast<float>(wanted));
            const double factor = as == Given::f32_each ? double{narrow[0]} : wanted;
            Factor given{.value = factor};
            if (as == Given::f64_row) given.each = value_view(many.data(), DType::f64, {1});
            if (as == Given::f64_each) given.each = value_view(many.data(), DType::f64, {n});
            if (as == Given::f32_each) given.each = value_view(narrow.data(), DType::f32, {n});
            decode_scaled(code_view(codes.data(), format, {n}), value_view(out.data(), target, {n}),
                          given, divide ? DecodeBy::inv_scale : DecodeBy::scale,
                          {.backend = backend.kernels});
            for (std::size_t i = 0; i < values.size(); ++i) {
              std::uint64_t got = 0;
              std::memcpy(&got, &out[i * size], size);
              const std::uint64_t want = rounded_bits(target, values[i], factor, divide);
              const auto is_nan = [&](std::uint64_t bits) {  // payloads are the target's own
                return target == DType::f64 ? std::isnan(std::bit_cast<double>(bits))
                       : target == DType::f32
                           ? std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
                           : false;
              };
              if (is_nan(want) && is_nan(got)) continue;
              ASSERT_EQ(got, want)
                  << backend.name << " " << GetParam().name << "->" << dtype_name(target)
                  << (divide ? " / " : " * ") << factor << ", given " << static_cast<int>(as)
                  << ": " << std::hexfloat << values[i];
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScaledExact, testing::ValuesIn(oracle::all_rows()), row_name);

}  // namespace
}  // namespace exact
