// A TensorError as JSON and back.
#include <utility>

#include "octavo/report/band_error.h"

namespace octavo {
namespace {

// Each member once, for both directions.
template <typename Error, typename Number, typename Count>
void for_each_member(Error& error, const Number& number, const Count& count) {
  number("error2", error.error2);
  number("value2", error.value2);
  number("result2", error.result2);
  number("max_abs", error.max_abs);
  number("max_relative", error.max_relative);
  number("amax", error.amax);
  number("least_scale", error.scales.least);
  number("most_scale", error.scales.most);
  count("elements", error.elements);
  count("count", error.count);
  count("finite", error.finite);
  count("saturated", error.saturated);
  count("flushed", error.flushed);
  count("zeros", error.zeros);
  count("result_zeros", error.result_zeros);
  count("input_nan", error.input.nan);
  count("input_inf", error.input.inf);
  count("result_nan", error.result.nan);
  count("result_inf", error.result.inf);
  count("scales", error.scales.count);
  count("nan_scales", error.scales.nan);
  count("zero_scales", error.scales.zero);
  count("nbytes", error.nbytes);
}

template <typename Counts>
Json counts_of(const Counts& counts) {
  Json out = Json::array();
  for (const std::int64_t count : counts) out.push(count);
  return out;
}

}  // namespace

Json TensorError::kept() const {
  BandError all = total_;
  for (const Sums& sums : sums_) {
    all.error2 += sums.error2;
    all.value2 += sums.value2;
    all.result2 += sums.result2;
  }
  Json out;
  for_each_member(
      all, [&](std::string_view name, double value) { out.set(name, value); },
      [&](std::string_view name, std::int64_t value) { out.set(name, value); });
  out.set("values", counts_of(all.values));
  out.set("results", counts_of(all.results));
  out.set("scale_counts", counts_of(all.scale_counts));
  out.set("codes", counts_of(all.codes));
  return out;
}

TensorError TensorError::restored(const Json& kept) {
  BandError band;
  for_each_member(
      band, [&](std::string_view name, double& value) { value = kept[name].number_or(0); },
      [&](std::string_view name, std::int64_t& value) { value = kept[name].integer_or(0); });
  const auto fill = [&](std::string_view name, auto& counts) {
    const std::vector<Json>& from = kept[name].elements();
    for (std::size_t i = 0; i < counts.size() && i < from.size(); ++i)
      counts[i] = from[i].integer_or(0);
  };
  band.codes.resize(std::min<std::size_t>(kept["codes"].elements().size(), 65536));
  fill("values", band.values);
  fill("results", band.results);
  fill("scale_counts", band.scale_counts);
  fill("codes", band.codes);
  TensorError error(1);
  error.add(0, band);
  return error;
}

}  // namespace octavo
