// Counts the checks of the data-oblivious test: work on hidden bytes, which memcheck must not
// report.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "hidden_bytes.h"
#include "octavo/backend/kernels.h"
#include "octavo/base/philox.h"
#include "operands.h"

namespace octavo::oblivious {

// Random bits, so every kind of value occurs: numbers of all sizes, zeros, NaN, Inf. The value does
// not decide whether memcheck reports a branch, but it does decide which branches are reached.
inline void fill(std::span<std::uint8_t> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); i += 16) {
    const PhiloxBlock block = philox4x32(seed, i);
    std::memcpy(&bytes[i], block.data(), std::min<std::size_t>(16, bytes.size() - i));
  }
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 40)
    std::memset(&bytes[i], i % 80 == 0 ? 0 : 0xFF, 8);
}

class Checker {
 public:
  using Bytes = std::span<std::uint8_t>;

  // Runs `work` on hidden bytes; the inputs are hidden for that time only.
  template <typename Work>
  void judge(const std::string& what, const std::vector<Bytes>& inputs,
             const std::vector<Bytes>& outputs, Work work) {
    for (const Bytes input : inputs) hide(input.data(), input.size());
    const unsigned before = reports();
    work();
    const unsigned found = reports() - before;
    bool reached = true;
    for (const Bytes output : outputs) reached &= tainted(output);
    for (const Bytes input : inputs) reveal(input.data(), input.size());
    for (const Bytes output : outputs) reveal(output.data(), output.size());
    ++cases_;
    if (found == 0 && reached) return;
    ++bad_;
    if (found > 0)
      std::printf("%s: %u reports of control or addresses that depend on data\n", what.c_str(),
                  found);
    if (!reached)
      std::printf("%s: nothing hidden reached the output; the check proves nothing\n",
                  what.c_str());
  }
  [[nodiscard]] int cases() const { return cases_; }
  [[nodiscard]] int bad() const { return bad_; }

 private:
  int cases_ = 0, bad_ = 0;
};

// Casts with factors; every quantizing entry of a backend; its products; norms, activations and
// RoPE; attention.
void check_scaled(Checker& checker, const Kernels& kernels);
void check_quantizing(Checker& checker, const Kernels& kernels);
void check_products(Checker& checker, const Kernels& kernels);
void check_operations(Checker& checker, const Kernels& kernels);
void check_attention(Checker& checker, const Kernels& kernels);

}  // namespace octavo::oblivious
