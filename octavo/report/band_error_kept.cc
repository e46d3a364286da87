// A TensorError as JSON and back.
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
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

// Counts as one string, because there are hundreds for every tensor and a number of its own takes
// thirty times its digits in memory: how many there are, then each, a run of n zeros as -n.
template <typename Counts>
std::string text_of(const Counts& counts) {
  std::string out = std::to_string(counts.size());
  for (std::size_t i = 0; i < counts.size();) {
    std::size_t end = i;
    while (end < counts.size() && counts[end] == 0) ++end;
    out += ' ';
    if (end > i) {
      out += '-' + std::to_string(end - i);
      i = end;
    } else {
      out += std::to_string(counts[i++]);
    }
  }
  return out;
}

// Calls set(index, count) for those that are not zero, and returns how many there are. What is not
// as it was written ends it: the file may be anybody's.
template <typename Set>
std::size_t read_counts(std::string_view text, Set&& set) {
  const char *at = text.data(), *const end = at + text.size();
  const auto next = [&](std::int64_t& number) {
    while (at != end && *at == ' ') ++at;
    const auto [after, problem] = std::from_chars(at, end, number);
    at = after;
    return problem == std::errc{};
  };
  std::int64_t size = 0, count = 0;
  if (!next(size) || size < 0 || size > 65536) return 0;
  for (std::int64_t i = 0; i < size && next(count);) {
    if (count >= 0) set(static_cast<std::size_t>(i), count);
    i += count >= 0 ? 1 : count > -65536 ? -count : 65536;
  }
  return static_cast<std::size_t>(size);
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
  out.set("values", text_of(all.values));
  out.set("results", text_of(all.results));
  out.set("scale_counts", text_of(all.scale_counts));
  out.set("codes", text_of(all.codes));
  return out;
}

TensorError TensorError::restored(const Json& kept) {
  BandError band;
  for_each_member(
      band, [&](std::string_view name, double& value) { value = kept[name].number_or(0); },
      [&](std::string_view name, std::int64_t& value) { value = kept[name].integer_or(0); });
  const auto fill = [&](std::string_view name, auto& counts) {
    (void)read_counts(kept[name].string_or(""), [&](std::size_t i, std::int64_t count) {
      if (i < counts.size()) counts[i] = count;
    });
  };
  band.codes.resize(read_counts(kept["codes"].string_or(""), [](std::size_t, std::int64_t) {}));
  fill("values", band.values);
  fill("results", band.results);
  fill("scale_counts", band.scale_counts);
  fill("codes", band.codes);
  TensorError error(1);
  error.add(0, band);
  return error;
}

}  // namespace octavo
