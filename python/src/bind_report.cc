// Error metrics.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bind.h"
#include "gemm_operand.h"
#include "octavo/report/choose_format.h"
#include "octavo/report/metrics.h"
#include "octavo/report/operation/gemm_error.h"

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

nb::dict array_error_dict(const View& before, const View& after) {
  ErrorMetrics m;
  {
    const nb::gil_scoped_release released;
    m = measure_error(before, after);
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
  out["flushed"] = m.flushed;
  out["flushed_share"] = m.flushed_share;
  out["input_nan"] = m.input.nan;
  out["input_inf"] = m.input.inf;
  out["result_nan"] = m.result.nan;
  out["result_inf"] = m.result.inf;
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

using Distance = std::tuple<double, double, double>;
using ProductErrors = std::tuple<std::int64_t, std::int64_t, Distance, Distance, Distance>;

Distance distance_tuple(const ProductDistance& distance) {
  return {distance.relative_l2, distance.max_abs, distance.cosine};
}

ProductErrors gemm_error(const View& a, const View& b, const OperandArgument& a_used,
                         const OperandArgument& b_used, const View& result, int threads) {
  const nb::gil_scoped_release released;
  const GemmError found = measure_gemm_error(a, b, operand_of(a_used), operand_of(b_used), result,
                                             {.threads = threads});
  return {found.elements, found.not_finite, distance_tuple(found.quantization),
          distance_tuple(found.accumulation), distance_tuple(found.total)};
}

}  // namespace

void bind_report(nb::module_& module) {
  module.def("error", &error_dict, nb::arg("values"), nb::arg("q"), nb::kw_only(), nb::arg("rows"),
             nb::arg("tiles"), nb::arg("histograms"), nb::arg("columnwise"), nb::arg("threads"));
  module.def("array_error", &array_error_dict, nb::arg("before"), nb::arg("after"));
  module.def(
      "choose_format",
      [](const View& values, const Scaling& scaling, int threads) {
        const nb::gil_scoped_release released;
        return choose_format(values, scaling, threads);
      },
      nb::arg("values"), nb::arg("scaling"), nb::kw_only(), nb::arg("threads"));
  module.def("gemm_error", &gemm_error, nb::arg("a"), nb::arg("b"), nb::arg("a_used"),
             nb::arg("b_used"), nb::arg("result"), nb::kw_only(), nb::arg("threads"),
             "(elements, not finite, quantization, accumulation, total); the last three are "
             "(relative_l2, max_abs, cosine).");
}

}  // namespace octavo::python
