// produce(): the result of a norm or an activation as plain values.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "octavo/backend/kernels.h"
#include "octavo/base/log.h"
#include "octavo/base/macros.h"
#include "octavo/quant/produced.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct ProduceOptions {
  // float32, float16 or bfloat16. Unset: the type of x, and float32 for float64.
  std::optional<DType> out{};
  int threads = 0;                   // 0: all cores the thread pool has
  const Kernels* backend = nullptr;  // null: the one the registry chooses
  Log* log = nullptr;  // if given, receives a message when a backend falls back to reference
  // On a device, as QuantizeOptions has them.
  void* stream = nullptr;
  std::span<std::byte> workspace{};
};

[[nodiscard]] OCTAVO_API Tensor produce(const Produced& values, const ProduceOptions& options = {});
// Into memory that shares nothing with x; its type decides, not options.out.
OCTAVO_API void produce_into(const Produced& values, const View& out,
                             const ProduceOptions& options = {});

}  // namespace octavo
