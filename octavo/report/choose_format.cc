#include "octavo/report/choose_format.h"

#include "octavo/base/error.h"
#include "octavo/quant/quantize.h"
#include "octavo/report/metrics.h"

namespace octavo {

Scaling choose_format(const View& values, const Scaling& scaling, int threads) {
  check(scaling.policy != AmaxPolicy::wmse, ErrorCode::invalid_argument, "choose_format",
        "got policy wmse, which weighs errors by the inputs of a Linear, and values alone do not "
        "say them; choose with policy mse, then quantize with wmse");
  Scaling best = scaling;
  double least = 0;
  for (const Format& format : {e4m3fn, e5m2}) {
    Scaling tried = scaling;
    tried.format = format;
    const QuantizedTensor q = quantize(values, tried, {.threads = threads});
    const double error = measure_error(values, q, {.threads = threads}).mse;
    if (format != e4m3fn && !(error < least)) continue;
    least = error;
    best = tried;
  }
  return best;
}

}  // namespace octavo
