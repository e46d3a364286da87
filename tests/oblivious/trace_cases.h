// What oblivious_trace steps through: calls on data that it fills before each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/backend/kernels.h"
#include "operands.h"

namespace octavo::oblivious {

constexpr std::int64_t kTraceCount = 75;  // a whole run of the widest loop (64), and a tail

struct TraceCase {
  std::string name;
  bool oblivious;  // false: a control, which must be seen to differ
  std::function<void()> run;
};

struct TraceBuffers {
  std::vector<std::uint8_t> input = std::vector<std::uint8_t>(kTraceCount * 8);
  std::vector<std::uint8_t> output = std::vector<std::uint8_t>(kTraceCount * 8);
};

class TraceCases {
 public:
  TraceCases(TraceBuffers& buffers, const Kernels& kernels)
      : buffers_(buffers), kernels_(kernels) {}

  void add_controls();
  void add_casts();       // encode, decode, encode_scaled, decode_scaled
  void add_quantizing();  // and dequantize
  void add_products();    // of few and many rows, packed and grouped
  void add_operations();  // norms, activations, RoPE
  void add_attention();   // and KV decode
  void keep(std::string_view text) {
    std::erase_if(cases_,
                  [&](const TraceCase& one) { return one.name.find(text) == one.name.npos; });
  }
  // The controls, and every n-th of the others.
  void keep_every(std::size_t n) {
    std::size_t at = 0;
    std::erase_if(cases_, [&](const TraceCase& one) { return one.oblivious && at++ % n != 0; });
  }
  [[nodiscard]] const std::vector<TraceCase>& all() const { return cases_; }

 private:
  using Operands = std::vector<std::shared_ptr<HiddenOperand>>;

  void add(const std::string& name, const std::function<void()>& run, bool oblivious = true);
  // `run` of operands that are filled with the input, again and again, before it.
  void add_with(const std::string& name, const Operands& operands,
                const std::function<void()>& run);
  void add_encode(const Format& format, DType dtype, const EncodePolicy& policy);
  void add_scaled(const Format& format, DType dtype);
  void add_quantize(const char* name, DType dtype);
  void add_product(const char* a, const char* b, std::int64_t rows);
  void add_packed(const char* a, const char* b, std::int64_t rows);
  void add_grouped(const char* name);
  void add_decode(const char* name, std::int64_t queries);

  TraceBuffers& buffers_;
  const Kernels& kernels_;
  std::vector<TraceCase> cases_{};
};

}  // namespace octavo::oblivious
