// Data-oblivious check of norms, activations and RoPE under valgrind: inputs, weights and biases
// are hidden. Divisions and square roots are instructions whose time may depend on their operands.
#include "checker.h"
#include "octavo/base/error.h"
#include "octavo/ops/activation.h"
#include "octavo/ops/norm.h"
#include "octavo/ops/rope.h"

namespace octavo::oblivious {
namespace {

const Shape kShapes[] = {{3, 64}, {2, 301}};

template <typename Norm>
void check_norm(Checker& checker, const Kernels& kernels, const char* name, DType dtype,
                const Shape& shape) {
  const Tensor x = Tensor::values(shape, dtype), weight = Tensor::values({shape[1]}, dtype);
  fill(bytes_of(x), 5);
  fill(bytes_of(weight), 6);
  const Tensor out = Tensor::values(shape, dtype);
  checker.judge(text(kernels.name, ": ", name, " ", dtype_name(dtype), " ", to_string(shape)),
                {bytes_of(x), bytes_of(weight)}, {bytes_of(out)}, [&] {
                  produce_into(produced(x.view(), Norm{.weight = weight.view()}), out.view(),
                               {.threads = 1, .backend = &kernels});
                });
}

void check_activation(Checker& checker, const Kernels& kernels, ActivationKind kind, bool gated,
                      DType dtype, const Shape& shape) {
  const Tensor x = Tensor::values({shape[0], shape[1] * (gated ? 2 : 1)}, dtype),
               out = Tensor::values(shape, dtype);
  fill(bytes_of(x), 5);
  checker.judge(text(kernels.name, ": activation ", static_cast<int>(kind),
                     gated ? ", gated " : " ", dtype_name(dtype), " ", to_string(shape)),
                {bytes_of(x)}, {bytes_of(out)}, [&] {
                  produce_into(produced(x.view(), Activation{.kind = kind, .gated = gated}),
                               out.view(), {.threads = 1, .backend = &kernels});
                });
}

void check_rope(Checker& checker, const Kernels& kernels, DType dtype) {
  if (kernels.rope == nullptr) return;
  const Shape shape{3, 2, 40};
  const Tensor x = Tensor::values(shape, dtype), out = Tensor::values(shape, dtype),
               frequencies = Tensor::values({18}, DType::f32);
  for (std::size_t i = 0; i < 18; ++i)
    frequencies.span<float>()[i] = 1.0F / static_cast<float>(1 + i * i);
  fill(bytes_of(x), 5);
  checker.judge(
      text(kernels.name, ": RoPE ", dtype_name(dtype)), {bytes_of(x)}, {bytes_of(out)}, [&] {
        rope_into(x.view(), {.inverse_frequencies = frequencies.view(), .first_position = 9},
                  out.view(), {.threads = 1, .backend = &kernels});
      });
}

}  // namespace

void check_operations(Checker& checker, const Kernels& kernels) {
  for (const DType dtype : {DType::f32, DType::bf16}) check_rope(checker, kernels, dtype);
  for (const Shape& shape : kShapes)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      check_norm<LayerNorm>(checker, kernels, "layer norm", dtype, shape);
      check_norm<RmsNorm>(checker, kernels, "RMS norm", dtype, shape);
      for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh,
                                        ActivationKind::relu, ActivationKind::silu})
        for (const bool gated : {false, true})
          check_activation(checker, kernels, kind, gated, dtype, shape);
    }
}

}  // namespace octavo::oblivious
