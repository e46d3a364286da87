#include "octavo/nn/norm_layer.h"

#include "octavo/ops/norm.h"

namespace octavo {
namespace {

ProduceOptions options_of(const LinearRun& run) {
  return {.threads = run.threads, .backend = run.backend, .log = run.log, .stream = run.stream};
}

}  // namespace

std::int64_t NormLayer::nbytes() const {
  return (exists() ? weight.nbytes() : 0) + (bias.owner() != nullptr ? bias.nbytes() : 0);
}

Produced NormLayer::produced(const View& x) const {
  if (kind == NormKind::rms)
    return octavo::produced(
        x, RmsNorm{.weight = weight.view(), .epsilon = epsilon, .zero_centred = zero_centred});
  return octavo::produced(x, LayerNorm{.weight = weight.view(),
                                       .bias = bias.view(),
                                       .epsilon = epsilon,
                                       .zero_centred = zero_centred});
}

Tensor NormLayer::forward(const View& x, const LinearRun& run) const {
  return produce(produced(x), options_of(run));
}

void NormLayer::forward_into(const View& x, const View& out, const LinearRun& run) const {
  produce_into(produced(x), out, options_of(run));
}

}  // namespace octavo
