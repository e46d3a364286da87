// One forward of attention on the caller's tensors, under the recipe of an autocast scope: the
// function that attention modules of all frameworks call.
//
//   the recipe has    Q, K and V                     P                  output
//   neither           values                         as options.rung    values
//   fp8_dpa           codes, by their quantizers     e4m3               values
//   fp8_mha           the same                       e4m3               codes, by its quantizer
//
// Backward is attention_backward of ops/attention/attention.h, in f32, at the operands that forward
// used.
#pragma once

#include <memory>

#include "octavo/base/macros.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/ops/attention/attention.h"
#include "octavo/recipe/autocast.h"
#include "octavo/recipe/module_quantizers.h"

namespace octavo {

// With a slot for each tensor of attention (Q, K, V, P, output), and none for gradients.
[[nodiscard]] OCTAVO_API ModuleQuantizersOptions attention_quantizers();

struct AttentionPassCall {
  View q{}, k{}, v{};          // values, of any strides
  AttentionOptions options{};  // but threads, backend, log and stream, which are those of `run`
  AttentionRung fp8_rung = AttentionRung::fast;  // of FP8: or strict, whose P is two terms
  // False: inference or validation. Delayed scaling is not updated.
  bool training = true;
  AutocastState autocast = current_autocast();
  ModuleQuantizers* quantizers = nullptr;  // must be given where the recipe asks for FP8
  ForwardScales* scales = nullptr;  // if given: scales of delayed scaling, for a recomputed forward
  LinearRun run{};                  // all but the accumulator
};

struct AttentionPassResult {
  Tensor out{};                   // of the type of Q; f32 where it will be quantized
  QuantizedTensor q{}, k{}, v{};  // the quantized operands, where they were quantized
  bool is_fp8 = false;
  // fp8_mha: the set whose output quantizer makes the codes, see attention_output_codes.
  std::shared_ptr<QuantizerSet> output_quantizers{};
};

// Does a recipe ask for FP8? fp8_mha does, too. Throws Error(unsupported) where it cannot have it.
[[nodiscard]] OCTAVO_API bool asks_for_fp8_attention(const Recipe& recipe);

// Rows beyond the mask's lengths must be zeros: they would enter the scales.
[[nodiscard]] OCTAVO_API AttentionPassResult attention_forward(const AttentionPassCall& call);

// The output of such a forward as codes: `out` has its values, laid out as the next layer wants
// them.
[[nodiscard]] OCTAVO_API QuantizedTensor attention_output_codes(const AttentionPassCall& call,
                                                                const AttentionPassResult& result,
                                                                const View& out);

}  // namespace octavo
