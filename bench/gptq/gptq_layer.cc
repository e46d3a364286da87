// GPTQ of one layer, for run.py to time: THREADS [WIDTH] [ROWS] [RUNS] [PRESET]. Prints JSON.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/hash/row_hash_internal.h"
#include "octavo/model/gptq/gptq_factor_internal.h"
#include "octavo/model/gptq/hessian_sum_internal.h"

namespace octavo {
namespace {

constexpr std::int64_t kTokens = 16384;  // what `quantize --method gptq` is calibrated by at most

// Neighbouring channels are correlated and of very different sizes, as those of a model are.
Tensor tokens_of(std::int64_t rows, std::int64_t width, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Tensor out = Tensor::values({rows, width}, DType::f32);
  float* at = out.span<float>().data();
  for (std::int64_t row = 0; row < rows; ++row) {
    float before = 0.0F;
    const float common = normal(random);
    for (std::int64_t i = 0; i < width; ++i) {
      before = 0.8F * before + normal(random) + 0.5F * common;
      *at++ = before * (i % 7 == 0 ? 4.0F : 0.5F);
    }
  }
  return out;
}

// By the clock, and of all threads of the process: what others do on the machine is in the first.
struct Timed {
  std::vector<double> seconds{}, cpu_seconds{};

  template <typename Work>
  void add(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu = std::clock();
    work();
    cpu_seconds.push_back(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  void print(const char* name) const {
    for (const auto& [kind, all] : {std::pair{"", &seconds}, std::pair{"cpu_", &cpu_seconds}}) {
      std::printf("\"%s_%sseconds\": [", name, kind);
      for (std::size_t i = 0; i < all->size(); ++i)
        std::printf("%s%.3f", i == 0 ? "" : ", ", (*all)[i]);
      std::printf("], ");
    }
  }
};

void time_layer(int threads, std::int64_t width, std::int64_t rows, int runs, const char* name) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  Tensor weight = Tensor::values({rows, width}, DType::bf16);
  for (std::uint16_t& bits : weight.span<std::uint16_t>())
    bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
  // A part of the tokens again and again: what they are does not change the time.
  const Tensor tokens = tokens_of(std::min<std::int64_t>(kTokens, 2 * width), width, random);
  const GptqOptions options{.threads = threads};
  Timed hessian_time, factor_time, column_time;
  GptqResult made;
  for (int run = 0; run < runs; ++run) {
    gptq_detail::HessianSum sum(width);
    hessian_time.add([&] {
      while (sum.rows() < kTokens) sum.add(tokens.view(), threads);
    });
    std::vector<double> hessian = sum.take();
    gptq_detail::GptqFactor factor;
    factor_time.add([&] {
      factor = gptq_detail::factor_hessian(std::move(hessian), width, options, "the layer");
    });
    column_time.add([&] {
      made = gptq_detail::gptq_with(factor, weight.view(), preset(name), options, "the layer");
    });
  }
  const Tensor& codes = made.codes.rowwise.codes;
  const std::uint64_t hash = content_hash(codes.bytes(), width, 0);
  std::printf("{\"preset\": \"%s\", \"rows\": %lld, \"width\": %lld, \"threads\": %d, ", name,
              static_cast<long long>(rows), static_cast<long long>(width), threads);
  hessian_time.print("hessian");
  factor_time.print("factor");
  column_time.print("column");
  std::printf("\"hessian_tokens\": %lld, \"error\": %.17g, \"rounded_error\": %.17g, ",
              static_cast<long long>(kTokens), made.error, made.rounded_error);
  std::printf("\"codes\": \"%016llx\"}\n", static_cast<unsigned long long>(hash));
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  const auto number = [&](int at, std::int64_t otherwise) {
    return argc > at ? std::strtoll(argv[at], nullptr, 10) : otherwise;
  };
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_gptq THREADS [WIDTH] [ROWS] [RUNS] [PRESET]\n");
    return 2;
  }
  try {
    const std::int64_t width = number(2, 4096);
    octavo::time_layer(static_cast<int>(number(1, 1)), width, number(3, width),
                       static_cast<int>(number(4, 3)), argc > 5 ? argv[5] : "nvfp4");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
