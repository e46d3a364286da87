#include "octavo/convert/widen.h"

#include <algorithm>

#include "octavo/base/fp_env.h"
#include "octavo/convert/convert.h"
#include "octavo/format/named_formats.h"

namespace octavo {

Tensor widened(const Tensor& numbers) {
  if (numbers.dtype() == DType::f32) return numbers;
  Tensor wide = Tensor::values(numbers.shape(), DType::f32);
  if (numbers.dtype() == DType::f64) {
    const FpEnvGuard guard;
    const auto from = numbers.span<double>();
    std::transform(from.begin(), from.end(), wide.span<float>().begin(),
                   [](double value) { return static_cast<float>(value); });
    return wide;
  }
  // The 16-bit types are formats like others.
  const View& view = numbers.view();
  const Format format = view.dtype == DType::code   ? view.format
                        : view.dtype == DType::bf16 ? bf16_format
                                                    : f16_format;
  decode(code_view(view.data, format, view.shape), wide.view(), {.threads = 1});
  return wide;
}

}  // namespace octavo
