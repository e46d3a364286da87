// One forward and one backward of y = x w^T + bias on the caller's tensors (fprop, dgrad, wgrad),
// under the recipe of an autocast scope. Linear keeps parameters, gradients and caches around
// these; so can a module of another framework, whose results are then the same bits.
//
//   product   result         operands
//   fprop     y  = x w^T     x and w rowwise
//   dgrad     dx = dy w      dy rowwise, w columnwise
//   wgrad     dw = dy^T x    dy and x columnwise
//
// Each is [M, K] x [N, K]^T of ops/gemm.h. The bias gradient is the sum of dy as it comes. y and dx
// have the type of x, gradients that of their parameter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "octavo/backend/kernels.h"
#include "octavo/base/log.h"
#include "octavo/base/macros.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/recipe/autocast.h"
#include "octavo/recipe/module_quantizers.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// As in QuantizeOptions and GemmOptions.
struct LinearRun {
  int threads = 0;
  const Kernels* backend = nullptr;
  Log* log = nullptr;
  void* stream = nullptr;
  // Of products of codes; native leaves it to the recipe. hopper_fp8 is what training on an FP8
  // tensor core would give, slowly on a CPU: e4m3 and e5m2 only, promoted as the recipe's
  // use_split_accumulator says. Values are summed in f32.
  Accumulator accumulator = Accumulator::native;
  // If given, the allocator of all memory that grows with the tensors: results, codes and scales,
  // dequantized values. Else the library allocates, and on a device synchronizes when it frees
  // memory.
  MakeTensor make{};
};

// Values, [out, in], or codes that quantized_model_init made, with the recipe they were made for.
struct LinearWeight {
  Tensor values{};
  std::shared_ptr<const QuantizedTensor> codes{};
  std::shared_ptr<const Recipe> made_with{};

  [[nodiscard]] const Shape& shape() const { return codes ? codes->shape : values.shape(); }
  [[nodiscard]] DType dtype() const { return codes ? codes->source : values.dtype(); }
};

// The weight's codes, from one micro-batch to the next.
struct WeightCache {
  std::shared_ptr<const QuantizedTensor> codes{};
};

// The gradients that backward will compute. None: nothing is saved.
struct LinearNeeds {
  bool dx = true, dw = true, db = true;
  [[nodiscard]] bool any() const { return dx || dw || db; }
};

struct LinearCall {
  Tensor x{};  // [..., in], leading dimensions one run of memory
  LinearWeight weight{};
  Tensor bias{};  // [out], or empty
  LinearNeeds needs{};
  // False: inference or validation. Delayed scaling is not updated in either direction, and no amax
  // is recorded for a later step; except while calibrating. A frozen layer before trained ones has
  // no needs, and is in training all the same: its scales are updated.
  bool training = true;
  // Not given: the weight is quantized in each forward. True: it is, and the codes are kept in
  // `cache`. False: those are used, also where the weight has changed since.
  std::optional<bool> is_first_microbatch{};
  AutocastState autocast = current_autocast();
  ModuleQuantizers* quantizers = nullptr;  // must be given inside an autocast scope
  WeightCache* cache = nullptr;
  ForwardScales* scales = nullptr;  // if given: scales of delayed scaling, for a recomputed forward
  LinearRun run{};
};

// What backward needs. Under a recipe that is codes: of x the columnwise copy only.
struct OCTAVO_API LinearSaved {
  Shape y_shape{}, x_shape{};
  DType x_dtype = DType::f32, w_dtype = DType::f32, b_dtype = DType::f32;
  std::int64_t in = 0, out = 0;
  LinearNeeds needs{};
  LinearRun run{};
  BackwardOverride override = BackwardOverride::none;
  Tensor x{};  // where backward multiplies values
  QuantizedTensor x_codes{};
  LinearWeight weight{};  // values or codes
  // The quantizers of gradients, whether they only calibrate, and whether they record amaxes.
  std::shared_ptr<QuantizerSet> quantizers{};
  bool calibrating = false, gathers = true;
  // Delayed scaling: the scale of dy in the first backward, for later ones of the same graph. Empty
  // before that; shared by copies.
  std::shared_ptr<Tensor> gradient_scale{};
  std::shared_ptr<BackwardTicket> ticket{};
  ModuleQuantizers::SharedMutex mutex{};  // of the layer

  [[nodiscard]] bool is_filled() const { return y_shape.rank() > 0; }
  // Bytes saved of x. The weight belongs to the caller, or to a cache.
  [[nodiscard]] std::int64_t x_nbytes() const;

  // For frameworks that keep the memory themselves (saved tensors that may be freed and
  // recomputed): takes all tensors out, values ("x", "weight") and codes with their scales
  // ("x.columnwise_codes", ...). The remaining LinearSaved has no memory, and is usable after
  // with_parts.
  struct Part {
    std::string_view name;
    Tensor tensor;
  };
  [[nodiscard]] std::vector<Part> take_parts();
  // With parts in that order: like those that were taken, and maybe elsewhere in memory.
  [[nodiscard]] LinearSaved with_parts(std::span<const Tensor> parts) const;

  static constexpr std::size_t kMaxParts = 14;
  std::array<std::optional<View>, kMaxParts> taken{};  // how they lay in memory
};

struct LinearGradients {
  Tensor dx{}, dw{}, db{};  // empty where they were not asked for
};

// Without `saved` a call is inference. All checks and warnings come before anything is computed or
// changed. Calls of several threads with the same quantizers are serialized, each a whole forward
// or backward; so `cache` belongs to one ModuleQuantizers.
[[nodiscard]] OCTAVO_API Tensor linear_forward(const LinearCall& call,
                                               LinearSaved* saved = nullptr);

// May run on any thread. `before`, where it has dw or db, is added to them.
[[nodiscard]] OCTAVO_API LinearGradients linear_backward(const Tensor& dy, const LinearSaved& saved,
                                                         const LinearGradients& before = {});

}  // namespace octavo
