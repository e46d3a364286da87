// As fp_env_test.cc, for quantization: some of the scale arithmetic is above the kernel interface.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/quant/quantize.h"
#include "octavo/report/metrics.h"

namespace octavo {
namespace {

struct Result {
  std::vector<std::byte> codes, scales, tensor_scale, back;
  double sqnr = 0, cosine = 0;
  bool operator==(const Result&) const = default;
};

std::vector<std::byte> copied(const Tensor& tensor) {
  if (tensor.owner() == nullptr) return {};
  const auto bytes = tensor.bytes();
  return {bytes.begin(), bytes.end()};
}

Result result_of(const Tensor& values, const Scaling& scaling) {
  const QuantizedTensor q = quantize(values.view(), scaling);
  const ErrorMetrics metrics = measure_error(values.view(), q);
  return {copied(q.rowwise.codes),
          copied(q.rowwise.scales),
          copied(q.rowwise.tensor_scale),
          copied(dequantize(q)),
          metrics.sqnr,
          metrics.cosine};
}

TEST(QuantizeFpEnv, QuantizingIgnoresTheCallersSetting) {
  Tensor ordinary = Tensor::values({4, 64}, DType::f32), tiny = Tensor::values({4, 64}, DType::f32);
  for (std::size_t i = 0; i < 256; ++i) {
    ordinary.span<float>()[i] = 0.37F * static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
    tiny.span<float>()[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(i * 5003));
  }
  for (const std::string& name : preset_names()) {
    for (const Arith arith : {Arith::octavo, Arith::divide, Arith::te}) {
      Scaling scaling = preset(name);
      // Transformer Engine has no such scales.
      if (arith == Arith::te && scaling.scale.format == ScaleFormat::bf16) continue;
      scaling.scale.arith = arith;
      for (const Tensor* values : {&ordinary, &tiny}) {
        const Result wanted = result_of(*values, scaling);
        for (const FpRounding rounding : {FpRounding::up, FpRounding::down, FpRounding::zero}) {
          Result got;
          {
            const FpEnvGuard caller(rounding);
            got = result_of(*values, scaling);
          }
          EXPECT_TRUE(got == wanted) << name << ", arith " << name_of(arith) << ", rounding "
                                     << static_cast<int>(rounding);
        }
#if defined(__aarch64__)
        Result flushed;
        std::uint64_t before = 0;
        asm volatile("mrs %0, fpcr" : "=r"(before)::"memory");
        asm volatile("msr fpcr, %0" ::"r"(std::uint64_t{1} << 24) : "memory");
        flushed = result_of(*values, scaling);
        asm volatile("msr fpcr, %0" ::"r"(before) : "memory");
        EXPECT_TRUE(flushed == wanted) << name << ", arith " << name_of(arith) << ", flush to zero";
#endif
      }
    }
  }
}

}  // namespace
}  // namespace octavo
