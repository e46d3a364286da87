// A few steps of training one layer, y = x w^T, toward the outputs of another: in single precision,
// and with all GEMM operands in MXFP8, gradients included.
#include <octavo/octavo.h>

#include <cmath>
#include <cstdint>
#include <cstdio>

namespace {

constexpr std::int64_t kRows = 64, kIn = 96, kOut = 32;

octavo::Tensor wave(const octavo::Shape& shape, double step) {
  octavo::Tensor tensor = octavo::Tensor::values(shape, octavo::DType::f32);
  double at = 0.0;
  for (float& value : tensor.span<float>()) value = static_cast<float>(std::sin(at += step));
  return tensor;
}

// The last loss, over the first.
double train(bool quantized) {
  const octavo::Tensor x = wave({kRows, kIn}, 0.37);
  const octavo::Tensor wanted = octavo::gemm(x, wave({kOut, kIn}, 0.11));
  octavo::Linear layer(kIn, kOut, {.bias = false, .seed = 1});
  double first = 0.0, loss = 0.0;
  for (int step = 0; step < 30; ++step) {
    octavo::Tensor y;
    {
      const octavo::Autocast scope(octavo::MXFP8BlockScaling{}, {.enabled = quantized});
      y = layer.forward(x);
    }
    octavo::Tensor dy = octavo::Tensor::values(y.shape(), octavo::DType::f32);
    loss = 0.0;
    for (std::size_t i = 0; i < y.span<float>().size(); ++i) {
      const float off = y.span<float>()[i] - wanted.span<float>()[i];
      loss += static_cast<double>(off) * static_cast<double>(off);
      dy.span<float>()[i] = off / static_cast<float>(kRows);
    }
    if (step == 0) first = loss;
    (void)layer.backward(dy);
    for (std::size_t i = 0; i < layer.weight().span<float>().size(); ++i)
      layer.weight().span<float>()[i] -= 0.05F * layer.weight_grad().span<float>()[i];
    layer.zero_grad();
  }
  return loss / first;
}

}  // namespace

int main() {
  const double plain = train(false), mxfp8 = train(true);
  std::printf("loss after 30 steps, of the first: %.4f in single precision, %.4f in MXFP8\n", plain,
              mxfp8);
  return plain < 0.1 && mxfp8 < 0.1 ? 0 : 1;
}
