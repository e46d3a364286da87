// All codes of every format: decoded to every value type on every backend, encoded back, and
// converted to every other format of eight bits and fewer.
#include "tests/exact/exact_harness.h"

namespace exact {
namespace {

// All codes as the library stores them unpacked.
std::vector<std::uint8_t> all_codes(const Format& format) {
  std::vector<std::uint8_t> bytes;
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code) {
    bytes.push_back(static_cast<std::uint8_t>(code));
    if (format.code_bytes() == 2) bytes.push_back(static_cast<std::uint8_t>(code >> 8));
  }
  return bytes;
}

// The bits that a code must decode to. f32 by the hardware's cast, the 16-bit types by an oracle of
// their own.
std::uint64_t want_bits(const oracle::Meaning& meaning, DType dtype) {
  static const oracle::Oracle kHalf(oracle::row_named("e5m10")), kBfloat(oracle::row_named("e8m7"));
  double value = meaning.value;
  if (meaning.kind == oracle::Kind::inf) value = meaning.negative ? -INFINITY : INFINITY;
  if (meaning.kind == oracle::Kind::nan) value = meaning.negative ? -NAN : NAN;
  constexpr EncodePolicy kRoundOnce{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<std::uint64_t>(value);
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f16:
      return kHalf.encode(value, kRoundOnce).code;
    default:
      return kBfloat.encode(value, kRoundOnce).code;
  }
}

class EveryCode : public EveryFormat {};

TEST_P(EveryCode, DecodesOnEveryBackend) {
  const oracle::Oracle oracle(GetParam());
  const Format format = parse_format(GetParam().name);
  std::vector<std::uint8_t> codes = all_codes(format);
  const auto count = static_cast<std::int64_t>(oracle.meanings().size());
  ASSERT_EQ(count, std::int64_t{format.code_mask()} + 1);
  for (const BackendInfo& backend : every_backend()) {
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      const auto size = static_cast<std::size_t>(element_bytes(dtype));
      std::vector<std::byte> values(static_cast<std::size_t>(count) * size, std::byte{0xAA});
      decode(code_view(codes.data(), format, {count}), value_view(values.data(), dtype, {count}),
             {.backend = backend.kernels});
      for (std::size_t i = 0; i < oracle.meanings().size(); ++i) {
        std::uint64_t got = 0;
        std::memcpy(&got, &values[i * size], size);
        ASSERT_EQ(got, want_bits(oracle.meanings()[i], dtype))
            << backend.name << " " << GetParam().name << "->" << dtype_name(dtype) << std::hex
            << " code 0x" << i;
      }
    }
  }
}

// Every number survives decode and encode, under every rounding: it is on the grid.
TEST_P(EveryCode, ComesBackUnderEveryRounding) {
  const oracle::Oracle oracle(GetParam());
  const Format format = parse_format(GetParam().name);
  std::vector<std::uint8_t> codes = all_codes(format);
  const auto count = static_cast<std::int64_t>(oracle.meanings().size());
  for (const BackendInfo& backend : every_backend()) {
    const Tensor values =
        decode(code_view(codes.data(), format, {count}), DType::f64, {.backend = backend.kernels});
    for (const Rounding rounding : kRoundings) {
      Counts counts;
      const Tensor back = encode(values.view(), format, policy_of(rounding, Overflow::ieee),
                                 {.counts = &counts, .backend = backend.kernels});
      const std::span<const std::byte> bytes = back.bytes();
      std::int64_t inf = 0;
      for (std::size_t i = 0; i < oracle.meanings().size(); ++i) {
        inf += oracle.meanings()[i].kind == oracle::Kind::inf;
        if (oracle.meanings()[i].kind == oracle::Kind::nan) continue;
        std::uint32_t got = static_cast<std::uint8_t>(bytes[format.code_bytes() == 1 ? i : 2 * i]);
        if (format.code_bytes() == 2) got |= static_cast<std::uint32_t>(bytes[2 * i + 1]) << 8;
        ASSERT_EQ(got, i) << backend.name << " " << GetParam().name << " " << name_of(rounding);
      }
      EXPECT_EQ(counts.flushed, 0) << backend.name << " " << GetParam().name;
      EXPECT_EQ(counts.saturated, inf) << backend.name << " " << GetParam().name;
    }
  }
}

// Formats of more than eight bits have many codes: they are converted to each other and to a few
// small formats of every kind.
bool is_tried(const oracle::FormatRow& from, const oracle::FormatRow& to) {
  if (from.bits() <= 8 || to.bits() > 8) return true;
  for (const char* name : {"e4m3fn", "e5m2fnuz", "e2m1fn", "mxint8", "e8m0fnu"}) {
    if (std::string(name) == to.name) return true;
  }
  return false;
}

// Codes of one format to codes of another, for every pair of formats, every rounding, and in place
// where it may be.
TEST_P(EveryCode, ConvertsToEveryOtherFormat) {
  const oracle::Oracle from(GetParam());
  const Format from_format = parse_format(GetParam().name);
  const std::vector<std::uint8_t> codes = all_codes(from_format);
  const std::size_t count = from.meanings().size();
  const Shape shape{static_cast<std::int64_t>(count)};
  const std::vector<BackendInfo> usable = every_backend();
  for (const oracle::FormatRow& row : oracle::all_rows()) {
    if (!is_tried(GetParam(), row)) continue;
    const oracle::Oracle to(row);
    const Format to_format = parse_format(row.name);
    std::vector<oracle::Place> places;
    for (const oracle::Meaning& meaning : from.meanings()) {
      places.push_back(to.locate(std::bit_cast<double>(want_bits(meaning, DType::f64))));
    }
    for (const Rounding rounding : kRoundings) {
      for (const Overflow overflow : {Overflow::saturate, Overflow::ieee}) {
        if (from_format.code_bytes() == 2 && overflow == Overflow::saturate) continue;
        const EncodePolicy policy = policy_of(rounding, overflow);
        std::vector<std::uint8_t> want;
        Counts want_counts;
        for (std::size_t i = 0; i < count; ++i) {
          const oracle::Result result =
              to.choose(places[i], policy, draws(policy.stochastic_bits, count)[i]);
          want.push_back(static_cast<std::uint8_t>(result.code));
          if (to_format.code_bytes() == 2)
            want.push_back(static_cast<std::uint8_t>(result.code >> 8));
          want_counts += {result.saturated, result.flushed, result.nan};
        }
        for (const BackendInfo& backend : usable) {
          std::vector<std::uint8_t> source = codes, got(want.size());
          Counts counts;
          const View source_view = code_view(source.data(), from_format, shape);
          encode(source_view, code_view(got.data(), to_format, shape), policy,
                 {.counts = &counts, .backend = backend.kernels});
          ASSERT_TRUE(got == want) << backend.name << " " << GetParam().name << "->" << row.name
                                   << " " << name_of(rounding);
          ASSERT_EQ(counts, want_counts)
              << backend.name << " " << GetParam().name << "->" << row.name;
          if (to_format.code_bytes() > from_format.code_bytes()) continue;
          encode(source_view, code_view(source.data(), to_format, shape), policy,
                 {.backend = backend.kernels});
          source.resize(want.size());
          ASSERT_TRUE(source == want)
              << backend.name << " in place " << GetParam().name << "->" << row.name;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryCode, testing::ValuesIn(oracle::all_rows()), row_name);

}  // namespace
}  // namespace exact
