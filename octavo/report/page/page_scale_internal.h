// The axis of a chart: from which value to which it goes, and what is written at it.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace octavo::page {

// From below the least to above the largest, in round steps.
struct Scale {
  double from = 0, to = 1, step = 1;
  bool logarithmic = false;

  Scale(std::vector<double> values, bool in_powers) : logarithmic(in_powers) {
    std::erase_if(
        values, [&](double value) { return !std::isfinite(value) || (logarithmic && value <= 0); });
    if (values.empty()) return;
    if (logarithmic)
      for (double& value : values) value = std::log10(value);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const double wide = std::max(*most - *least, logarithmic ? 0.3 : 0.5);
    step = std::pow(10.0, std::floor(std::log10(wide)));
    for (const double shorter : {0.5, 0.4, 0.5})
      if (wide / step < 4) step *= shorter;
    if (logarithmic) step = 1;
    from = logarithmic ? *least - 0.1 * wide : std::floor((*least - 0.04 * wide) / step) * step;
    to = logarithmic ? *most + 0.1 * wide : std::ceil((*most + 0.04 * wide) / step) * step;
  }
  [[nodiscard]] double share(double value) const {
    return ((logarithmic ? std::log10(value) : value) - from) / (to - from);
  }
  // Values that are written at the axis.
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> out;
    if (!logarithmic) {
      for (double at = from; at <= to + step / 2; at += step) out.push_back(at);
      return out;
    }
    for (double power = std::floor(from); power <= to; ++power)
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double value = digit * std::pow(10.0, power);
        if (std::log10(value) >= from && std::log10(value) <= to) out.push_back(value);
      }
    return out;
  }
};

}  // namespace octavo::page
