// The harness of the exact tests: arrays of inputs in every source type, the oracle's answer for
// whole arrays, and one function that runs a conversion on a backend and compares every element.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/convert/convert.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/policy_names.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/philox_oracle.h"
#include "tests/support/every_backend.h"
#include "tests/support/printed.h"

namespace exact {

using namespace octavo;  // NOLINT: a header of tests only
using octavo::support::every_backend;
using octavo::support::is_staged;

inline constexpr Rounding kRoundings[] = {
    Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero, Rounding::up,
    Rounding::down,         Rounding::to_odd,       Rounding::stochastic};
inline constexpr Overflow kOverflows[] = {Overflow::saturate, Overflow::propagate,
                                          Overflow::saturate_finite, Overflow::ieee};

// An array of inputs: bytes as the library takes them, doubles as the oracle does.
struct Inputs {
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;
  std::vector<double> values;

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(values.size()); }
  [[nodiscard]] View view() const {
    return as_read_only(value_view(const_cast<std::byte*>(bytes.data()), dtype, {count()}));
  }
  template <typename Bits>
  void add(Bits bits, double value) {
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof(Bits));
    std::memcpy(&bytes[at], &bits, sizeof(Bits));
    values.push_back(value);
  }
  void add(float value) { add(std::bit_cast<std::uint32_t>(value), double{value}); }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value), value); }
};

inline Inputs all_16_bit(DType dtype) {
  Inputs inputs{.dtype = dtype, .bytes = {}, .values = {}};
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    inputs.add(half,
               dtype == DType::f16 ? oracle::value_of_f16(half) : oracle::value_of_bf16(half));
  }
  return inputs;
}

inline constexpr std::uint64_t kSeed = 0x0123456789ABCDEFu;
inline constexpr std::uint64_t kFirstIndex = 5;  // not a multiple of the draws in a block

// The first draws of that seed, computed once: many tests use the same ones.
inline const std::vector<std::uint32_t>& draws(int bits, std::size_t count) {
  static std::array<std::vector<std::uint32_t>, kMaxStochasticBits + 1> cache;
  std::vector<std::uint32_t>& known = cache[static_cast<std::size_t>(bits)];
  while (known.size() < count)
    known.push_back(oracle::draw(kSeed, kFirstIndex + known.size(), bits));
  return known;
}

// Codes (as the library stores them) and counts that the oracle expects for a whole array.
struct Answer {
  std::vector<std::uint8_t> bytes;
  Counts counts;
};

class Examiner {
 public:
  Examiner(const oracle::Oracle& oracle, const Inputs& inputs) : oracle_(oracle), inputs_(inputs) {
    places_.reserve(inputs.values.size());
    for (const double value : inputs.values) places_.push_back(oracle.locate(value));
  }

  // Stochastic policies must draw as policy_of says.
  [[nodiscard]] Answer answer(const EncodePolicy& policy) const {
    Answer answer;
    const bool wide = oracle_.row().bits() > 8, random = policy.rounding == Rounding::stochastic;
    answer.bytes.reserve(places_.size() * (wide ? 2 : 1));
    const std::uint32_t* draw =
        random ? draws(policy.stochastic_bits, places_.size()).data() : nullptr;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const oracle::Result result = oracle_.choose(places_[i], policy, random ? draw[i] : 0);
      answer.bytes.push_back(static_cast<std::uint8_t>(result.code));
      if (wide) answer.bytes.push_back(static_cast<std::uint8_t>(result.code >> 8));
      answer.counts += {result.saturated, result.flushed, result.nan};
    }
    return answer;
  }

  // Runs the policy on every backend; false after the first difference, which it reports.
  [[nodiscard]] bool holds(const Format& format, const EncodePolicy& policy,
                           bool with_counts) const {
    const Answer want = answer(policy);
    static const std::vector<BackendInfo> kBackends = every_backend();
    for (const BackendInfo& backend : kBackends) {
      std::vector<std::uint8_t> bytes(want.bytes.size());
      Counts counts{-1, -1, -1};
      encode(inputs_.view(), code_view(bytes.data(), format, {inputs_.count()}), policy,
             {.counts = with_counts ? &counts : nullptr, .backend = backend.kernels});
      if (bytes != want.bytes) {
        const auto differ =
            std::mismatch(bytes.begin(), bytes.end(), want.bytes.begin()).first - bytes.begin();
        const std::size_t size = oracle_.row().bits() > 8 ? 2 : 1,
                          at = static_cast<std::size_t>(differ) / size;
        const auto code = [&](const std::vector<std::uint8_t>& from) {
          return size == 1 ? from[at] : from[2 * at] | from[2 * at + 1] << 8;
        };
        ADD_FAILURE() << describe(backend.name, policy, at)
                      << support::printed(": got 0x", std::hex, code(bytes), "; expected 0x",
                                          code(want.bytes));
        return false;
      }
      if (with_counts && counts != want.counts) {
        ADD_FAILURE() << describe(backend.name, policy, 0) << ": counts (saturated, flushed, NaN) "
                      << counts.saturated << " " << counts.flushed << " " << counts.nan
                      << "; expected " << want.counts.saturated << " " << want.counts.flushed << " "
                      << want.counts.nan;
        return false;
      }
    }
    return true;
  }

 private:
  [[nodiscard]] std::string describe(const std::string& backend, const EncodePolicy& policy,
                                     std::size_t at) const {
    return support::printed(
        backend, " ", dtype_name(inputs_.dtype), "->", oracle_.row().name, " ",
        name_of(policy.rounding), " ", name_of(policy.overflow), " nan ", name_of(policy.nan_input),
        ", element ", at, " = ", std::hexfloat, inputs_.values[at],
        policy.rounding == Rounding::stochastic ? text(", bits ", policy.stochastic_bits) : "");
  }

  const oracle::Oracle& oracle_;
  const Inputs& inputs_;
  std::vector<oracle::Place> places_;
};

// Formats without NaN refuse it by default (bad_input_test.cc); here they must take it.
inline EncodePolicy policy_of(Rounding rounding, Overflow overflow) {
  EncodePolicy policy{.rounding = rounding, .overflow = overflow, .nan_input = NanInput::zero};
  policy.seed = kSeed;
  policy.first_index = kFirstIndex;
  constexpr int kBits[] = {16, 8, 3, 1};
  policy.stochastic_bits = kBits[static_cast<std::size_t>(overflow)];
  return policy;
}

class EveryFormat : public testing::TestWithParam<oracle::FormatRow> {};

inline std::string row_name(const testing::TestParamInfo<oracle::FormatRow>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (c == '-') c = 'n';
  }
  return name;
}

}  // namespace exact
