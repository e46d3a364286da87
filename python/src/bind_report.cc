// What quantization cost.
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "octavo/report/metrics.h"

namespace octavo::python {
namespace {

nb::dict sums_dict(const std::vector<ErrorSums>& all) {
  std::vector<double> mse, relative_l2, sqnr, max_abs;
  std::vector<std::int64_t> count;
  for (const ErrorSums& sums : all) {
    count.push_back(sums.count);
    mse.push_back(sums.mse());
    relative_l2.push_back(sums.relative_l2());
    sqnr.push_back(sums.sqnr());
    max_abs.push_back(sums.max_abs);
  }
  nb::dict out;
  out["count"] = count;
  out["mse"] = mse;
  out["relative_l2"] = relative_l2;
  out["sqnr"] = sqnr;
  out["max_abs"] = max_abs;
  return out;
}

nb::dict error_dict(const View& values, const QuantizedTensor& q, bool rows, bool tiles,
                    bool histograms, bool columnwise, int threads) {
  ErrorMetrics m;
  {
    const nb::gil_scoped_release released;
    m = measure_error(values, q,
                      {.rows = rows,
                       .tiles = tiles,
                       .histograms = histograms,
                       .columnwise = columnwise,
                       .threads = threads});
  }
  nb::dict out;
  out["elements"] = m.elements;
  out["mse"] = m.mse;
  out["relative_l2"] = m.relative_l2;
  out["sqnr"] = m.sqnr;
  out["effective_bits"] = m.effective_bits;
  out["cosine"] = m.cosine;
  out["max_abs"] = m.max_abs;
  out["max_relative"] = m.max_relative;
  out["amax"] = m.amax;
  out["saturated"] = m.saturated;
  out["flushed"] = m.flushed;
  out["saturated_share"] = m.saturated_share;
  out["flushed_share"] = m.flushed_share;
  out["input_nan"] = m.input.nan;
  out["input_inf"] = m.input.inf;
  out["result_nan"] = m.result.nan;
  out["result_inf"] = m.result.inf;
  out["scale_count"] = m.scales.count;
  out["scale_least"] = m.scales.least;
  out["scale_most"] = m.scales.most;
  out["scale_nan"] = m.scales.nan;
  out["scale_zero"] = m.scales.zero;
  out["bits_per_value"] = m.bits_per_value;
  if (rows) out["rows"] = sums_dict(m.rows);
  if (tiles) out["tiles"] = sums_dict(m.tiles);
  if (histograms) {
    out["value_histogram"] = nb::make_tuple(m.values.first_exponent, m.values.counts);
    out["value_zeros"] = m.values.zeros;
    out["code_histogram"] = m.codes;
  }
  return out;
}

}  // namespace

void bind_report(nb::module_& module) {
  module.def("error", &error_dict, nb::arg("values"), nb::arg("q"), nb::kw_only(), nb::arg("rows"),
             nb::arg("tiles"), nb::arg("histograms"), nb::arg("columnwise"), nb::arg("threads"));
}

}  // namespace octavo::python
