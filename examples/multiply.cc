// A linear layer in MXFP8: activations and weights quantized along K, their GEMM with bias and GELU
// in the epilogue, compared with single precision.
#include <octavo/octavo.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  constexpr std::int64_t kTokens = 8, kIn = 256, kOut = 64;
  const auto wave = [](std::int64_t count, double step) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(std::sin(step * static_cast<double>(i + 1)));
    return values;
  };
  std::vector<float> x = wave(kTokens * kIn, 0.37), w = wave(kOut * kIn, 0.11);
  std::vector<float> bias = wave(kOut, 1.0);
  using octavo::DType;
  const octavo::View activations = octavo::value_view(x.data(), DType::f32, {kTokens, kIn});
  const octavo::View weights = octavo::value_view(w.data(), DType::f32, {kOut, kIn});
  const octavo::GemmOptions layer{.bias = octavo::value_view(bias.data(), DType::f32, {kOut}),
                                  .activation = octavo::ActivationKind::gelu};

  // [tokens, in] x [out, in]^T: K, the dimension of the sum, is last in both operands.
  const octavo::Scaling mxfp8 = octavo::preset("mxfp8");
  const octavo::Tensor quantized =
      octavo::gemm(octavo::quantize(activations, mxfp8), octavo::quantize(weights, mxfp8), layer);
  const octavo::Tensor plain = octavo::gemm(activations, weights, layer);

  double off = 0.0, all = 0.0;
  for (std::size_t i = 0; i < plain.span<float>().size(); ++i) {
    const double wanted = static_cast<double>(plain.span<float>()[i]);
    off += std::pow(static_cast<double>(quantized.span<float>()[i]) - wanted, 2);
    all += wanted * wanted;
  }
  const double relative = std::sqrt(off / all);
  std::printf("%lld x %lld results; relative error of MXFP8: %.2f %%\n",
              static_cast<long long>(kTokens), static_cast<long long>(kOut), 100 * relative);
  return relative > 0.0 && relative < 0.1 ? 0 : 1;
}
