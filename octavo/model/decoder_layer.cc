#include "octavo/model/decoder_layer.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "DecoderLayer";

void check_hidden(const View& hidden, const DecoderLayer::Parts& parts) {
  check_view(hidden, kOp, "the hidden states");
  check_on_cpu(hidden, kOp, "the hidden states");
  check_output(hidden, kOp);
  if (hidden.shape.rank() != 3 || hidden.shape[2] != parts.hidden)
    fail(ErrorCode::invalid_argument, kOp, "the hidden states have shape ", to_string(hidden.shape),
         "; expected [batch, tokens, ", parts.hidden, "]");
  check(hidden.dtype == DType::f32 || hidden.dtype == DType::bf16, ErrorCode::wrong_type, kOp,
        "the hidden states are ", is_value(hidden.dtype) ? dtype_name(hidden.dtype) : "codes",
        "; expected float32 or bfloat16");
  check(is_dense(hidden), ErrorCode::invalid_argument, kOp,
        "the hidden states are not one run of memory; copy them");
}

}  // namespace

void DecoderLayer::forward(const LayerCall& call) const {
  const View& hidden = call.hidden;
  check_hidden(hidden, *parts_);
  const std::int64_t before = call.cache == nullptr ? 0 : std::ranges::max(call.cache->lengths());
  check(hidden.shape[1] <= parts_->max_positions - before, ErrorCode::invalid_argument, kOp, "got ",
        hidden.shape[1], " tokens after ", before, "; expected at most the ", parts_->max_positions,
        " positions that the model has");
  if (element_count(hidden.shape) == 0) return;
  const LayerRun run{.run = call.run, .observer = call.observer, .context = call.context};
  if (hidden.dtype == DType::f32) return parts_->layer.forward(hidden, call.cache, run);
  const Tensor wide = converted(hidden, DType::f32, kOp, call.run);
  parts_->layer.forward(wide.view(), call.cache, run);
  convert_into(wide.view(), hidden, kOp, call.run);
}

}  // namespace octavo
