// Bounds of attention beside its error, and what they cost, as JSON on stdout and a table on
// stderr: bench_attention_bound [MOST_TOKENS]. For every rung, number of tokens and head size the
// medians over rows of bound / error, rows above their bound, and the CPU time of a call with a
// bound over that of one without: one thread, calls in turn, the medians.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "octavo/octavo.h"

namespace {

using octavo::AttentionOptions;
using octavo::AttentionRung;
using octavo::DType;
using octavo::Operand;
using octavo::Tensor;

constexpr std::int64_t kRowsCompared = 256;
constexpr int kTurns = 9;

struct Case {
  AttentionRung rung;
  const char* inputs;  // float32, bfloat16, or a preset: codes, made beforehand
};
constexpr Case kCases[] = {
    {AttentionRung::f32, "float32"},      {AttentionRung::f16, "float32"},
    {AttentionRung::bf16, "float32"},     {AttentionRung::bf16, "bfloat16"},
    {AttentionRung::strict, "float32"},   {AttentionRung::strict, "fp8-channel"},
    {AttentionRung::balanced, "float32"}, {AttentionRung::fast, "float32"},
    {AttentionRung::fast, "fp8-channel"},
};

// One of Q, K and V: what a call takes, and the same numbers exactly.
struct Input {
  Tensor values;
  octavo::QuantizedTensor codes;
  Tensor numbers;
  bool is_coded = false;

  [[nodiscard]] Operand operand() const { return is_coded ? Operand(codes) : Operand(values); }
};

Input made(std::int64_t tokens, std::int64_t size, const std::string& kind, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Input input;
  input.values = Tensor::values({1, 1, tokens, size}, DType::f32);
  for (float& number : input.values.span<float>()) number = normal(random);
  input.numbers = input.values;
  if (kind == "float32") return input;
  if (kind == "bfloat16") {
    const Tensor codes = octavo::encode(input.values.view(), octavo::bf16_format);
    input.values = Tensor::values({1, 1, tokens, size}, DType::bf16);
    std::copy(codes.bytes().begin(), codes.bytes().end(), input.values.bytes().begin());
    input.numbers = octavo::decode(codes.view(), DType::f32);
    return input;
  }
  input.is_coded = true;
  input.codes = octavo::quantize(input.values.view(), octavo::preset(kind));
  input.numbers = octavo::dequantize(input.codes, DType::f64);
  return input;
}

double median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(),
                   numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2),
                   numbers.end());
  return numbers[numbers.size() / 2];
}

double seconds(const std::function<void()>& call) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  call();
  return now() - start;
}

void run(const Case& one, std::int64_t tokens, std::int64_t size, bool is_first) {
  const Input q = made(tokens, size, one.inputs, 1), k = made(tokens, size, one.inputs, 2),
              v = made(tokens, size, one.inputs, 3);
  const octavo::Shape rows{1, 1, tokens};
  const Tensor bound = Tensor::values(rows, DType::f32), likely = Tensor::values(rows, DType::f32);
  const Tensor out = Tensor::values({1, 1, tokens, size}, DType::f32);
  const AttentionOptions plain{.rung = one.rung, .out = DType::f32, .threads = 1};
  AttentionOptions certified = plain, both = plain;
  certified.bound = both.bound = bound.view();
  both.probabilistic_bound = likely.view();
  const auto call = [&](const AttentionOptions& options) {
    return seconds([&] {
      octavo::attention_into(q.operand(), k.operand(), v.operand(), out.view(), options);
    });
  };
  std::vector<double> base, of_bound, of_both;
  for (int turn = 0; turn < kTurns; ++turn) {
    base.push_back(call(plain));
    of_bound.push_back(call(certified));
    of_both.push_back(call(both));
  }

  const std::int64_t compared = std::min(tokens, kRowsCompared);
  const std::vector<octavo::AttentionRange> some{{0, 0, 0, compared}};
  const Tensor exact = Tensor::values({1, 1, tokens, size}, DType::f64);
  octavo::attention_into(Operand(q.numbers), Operand(k.numbers), Operand(v.numbers), exact.view(),
                         {.rung = AttentionRung::exact, .out = DType::f64, .ranges = some});
  std::vector<double> errors, ratios, likely_ratios;
  std::int64_t above = 0, above_likely = 0;
  for (std::int64_t row = 0; row < compared; ++row) {
    double error = 0.0;
    for (std::int64_t e = 0; e < size; ++e) {
      const auto at = static_cast<std::size_t>(row * size + e);
      error = std::max(
          error, std::abs(static_cast<double>(out.span<float>()[at]) - exact.span<double>()[at]));
    }
    const double most = bound.span<float>()[static_cast<std::size_t>(row)],
                 less = likely.span<float>()[static_cast<std::size_t>(row)];
    above += !(error <= most);
    above_likely += !(error <= less);
    errors.push_back(error);
    ratios.push_back(most / error);
    likely_ratios.push_back(less / error);
  }
  const std::string name(octavo::name_of(one.rung));
  const double time = median(base), cost = median(of_bound) / time - 1.0,
               cost_of_both = median(of_both) / time - 1.0;
  std::printf(
      "%s\n {\"rung\": \"%s\", \"inputs\": \"%s\", \"tokens\": %lld, \"size\": %lld, \"rows\": "
      "%lld, "
      "\"median_error\": %.4g, \"bound_over_error\": %.4g, \"probabilistic_over_error\": %.4g, "
      "\"above\": %lld, \"above_probabilistic\": %lld, \"ms\": %.4g, \"cost\": %.4g, "
      "\"cost_of_both\": %.4g}",
      is_first ? "" : ",", name.c_str(), one.inputs, static_cast<long long>(tokens),
      static_cast<long long>(size), static_cast<long long>(compared), median(errors),
      median(ratios), median(likely_ratios), static_cast<long long>(above),
      static_cast<long long>(above_likely), 1e3 * time, cost, cost_of_both);
  std::fprintf(stderr,
               "%-9s %-12s S %5lld D %4lld  bound/error %9.3g  probabilistic %7.3g  above "
               "%lld and %lld  %8.3g ms  cost %5.1f %%, of both %5.1f %%\n",
               name.c_str(), one.inputs, static_cast<long long>(tokens),
               static_cast<long long>(size), median(ratios), median(likely_ratios),
               static_cast<long long>(above), static_cast<long long>(above_likely), 1e3 * time,
               1e2 * cost, 1e2 * cost_of_both);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const std::int64_t most = count > 1 ? std::strtoll(arguments[1], nullptr, 10) : 4096;
    std::printf("{\"question\": \"attention bounds\", \"backend\": \"%s\", \"rows\": [",
                octavo::cpu_backend().name);
    bool is_first = true;
    for (std::int64_t tokens = std::min<std::int64_t>(512, most); tokens <= most; tokens *= 2)
      for (const std::int64_t size : {64, 128})
        for (const Case& one : kCases) {
          run(one, tokens, size, is_first);
          is_first = false;
        }
    std::printf("\n]}\n");
    return 0;
  } catch (const octavo::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
