// One forward of attention on tensors of the caller's, as the recipe of an autocast scope says:
// what a module of any framework calls.
//
//   the recipe has    Q, K and V                     P                  output
//   neither           values                         as options.rung    values
//   fp8_dpa           codes, by their quantizers     e4m3               values
//   fp8_mha           the same                       e4m3               codes, by its quantizer
//
// Backward is attention_backward of ops/attention.h, in f32, at what forward multiplied.
#pragma once

#include <memory>

#include "octavo/base/macros.h"
#include "octavo/nn/linear_pass.h"
#include "octavo/ops/attention/attention.h"
#include "octavo/recipe/autocast.h"
#include "octavo/recipe/module_quantizers.h"

namespace octavo {

// With a slot for each tensor of attention, and none for gradients.
[[nodiscard]] OCTAVO_API ModuleQuantizersOptions attention_quantizers();

struct AttentionPassCall {
  View q{}, k{}, v{};  // values, of any strides
  AttentionOptions options{};
  AttentionRung fp8_rung = AttentionRung::fast;  // of FP8: or strict, whose P is two terms
  // False: inference, or validation. Delayed scaling stays where it is.
  bool training = true;
  AutocastState autocast = current_autocast();
  ModuleQuantizers* quantizers = nullptr;  // must be given where the recipe asks for FP8
  ForwardScales* scales = nullptr;  // if given: of delayed scaling, for this forward done again
  LinearRun run{};                  // all but the accumulator
};

struct AttentionPassResult {
  Tensor out{};                   // of the type of Q; f32 where codes are to be made of it
  QuantizedTensor q{}, k{}, v{};  // what was multiplied, where that is codes
  bool is_fp8 = false;
  // fp8_mha: whose quantizer of the output is to have it, see attention_output_codes.
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
