// All 2^32 f32 inputs, for e4m3fn and e5m2, saturate and ieee, on every backend but the reference,
// with all threads.
//
// The oracle is far too slow for all inputs, and need not see them all: among positive (or
// negative) numbers in order of their bits, the right code is monotonic, so it changes only a few
// hundred times. Bisection finds every change exactly; between two changes the expected codes are
// one constant.
#include <chrono>

#include "tests/exact/exact_harness.h"
#include "tests/support/printed.h"

namespace exact {
namespace {

struct Run {
  std::uint64_t first = 0;  // bits of the first input with this code
  std::uint8_t code = 0;
};

class ExpectedCodes {
 public:
  ExpectedCodes(const oracle::Oracle& oracle, const EncodePolicy& policy)
      : oracle_(oracle), policy_(policy) {
    constexpr std::uint32_t kInf = 0x7F800000u, kSign = 0x80000000u;
    for (const std::uint32_t sign : {0u, kSign}) {
      add_monotone(sign, sign | (kInf - 1));
      add(sign | kInf, code_of(sign | kInf));
      add(sign | (kInf + 1), code_of(sign | (kInf + 1)));  // all NaN alike
    }
  }

  // The codes of inputs first .. first + count - 1.
  void fill(std::uint64_t first, std::size_t count, std::uint8_t* codes) const {
    auto run = std::upper_bound(runs_.begin(), runs_.end(), first,
                                [](std::uint64_t at, const Run& r) { return at < r.first; }) -
               1;
    std::uint64_t at = first;
    while (at < first + count) {
      const std::uint64_t end =
          std::min(run + 1 == runs_.end() ? first + count : (run + 1)->first, first + count);
      std::memset(codes + (at - first), run->code, end - at);
      at = end;
      ++run;
    }
  }
  [[nodiscard]] std::size_t size() const { return runs_.size(); }

 private:
  [[nodiscard]] std::uint8_t code_of(std::uint32_t bits) const {
    return static_cast<std::uint8_t>(
        oracle_.encode(double{std::bit_cast<float>(bits)}, policy_).code);
  }
  void add(std::uint64_t first, std::uint8_t code) {
    if (runs_.empty() || runs_.back().code != code) runs_.push_back({first, code});
  }
  void add_monotone(std::uint32_t first, std::uint32_t last) {
    if (code_of(first) == code_of(last)) return add(first, code_of(first));
    if (last - first == 1) {
      add(first, code_of(first));
      return add(last, code_of(last));
    }
    const std::uint32_t middle = first + (last - first) / 2;
    add_monotone(first, middle);
    add_monotone(middle, last);
  }

  const oracle::Oracle& oracle_;
  EncodePolicy policy_;
  std::vector<Run> runs_;
};

struct Sweep {
  const char* format;
  Overflow overflow;
  std::size_t
      runs;  // codes on both signs with their edges: a broken bisection would not find them all
};

TEST(AllF32, EveryInputGivesItsCode) {
  // e4m3fn: 127 codes and NaN a sign; ieee makes Inf NaN, which joins the run of NaN. e5m2: 124
  // codes, NaN, and under ieee Inf.
  const Sweep sweeps[] = {{"e4m3fn", Overflow::saturate, 256},
                          {"e4m3fn", Overflow::ieee, 256},
                          {"e5m2", Overflow::saturate, 250},
                          {"e5m2", Overflow::ieee, 252}};
  constexpr std::size_t kChunk = std::size_t{1} << 22;
  std::vector<std::uint32_t> inputs(kChunk);
  std::vector<std::uint8_t> want(kChunk), got(kChunk);
  std::vector<oracle::Oracle> oracles;
  std::vector<ExpectedCodes> expected;
  oracles.reserve(std::size(sweeps));  // ExpectedCodes keeps references
  for (const Sweep& sweep : sweeps) {
    oracles.emplace_back(oracle::row_named(sweep.format));
    expected.emplace_back(oracles.back(), policy_of(Rounding::nearest_even, sweep.overflow));
    ASSERT_EQ(expected.back().size(), sweep.runs) << sweep.format << " " << name_of(sweep.overflow);
  }
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t first = 0; first < std::uint64_t{1} << 32; first += kChunk) {
    for (std::size_t i = 0; i < kChunk; ++i) inputs[i] = static_cast<std::uint32_t>(first + i);
    const View source = value_view(inputs.data(), DType::f32, {kChunk});
    for (std::size_t s = 0; s < std::size(sweeps); ++s) {
      expected[s].fill(first, kChunk, want.data());
      for (const BackendInfo& backend : every_backend()) {
        if (backend.kernels == &reference_backend()) continue;
        encode(source, code_view(got.data(), parse_format(sweeps[s].format), {kChunk}),
               policy_of(Rounding::nearest_even, sweeps[s].overflow), {.backend = backend.kernels});
        if (std::memcmp(got.data(), want.data(), kChunk) == 0) continue;
        const auto at = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
        FAIL() << backend.name << " " << sweeps[s].format << " " << name_of(sweeps[s].overflow)
               << support::printed(std::hex, ": input 0x", first + static_cast<std::uint64_t>(at),
                                   " gives 0x", int{got[static_cast<std::size_t>(at)]},
                                   "; expected 0x", int{want[static_cast<std::size_t>(at)]});
      }
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", static_cast<int>(seconds.count()));
}

}  // namespace
}  // namespace exact
