// How the pictures look, and the few pieces that both kinds share.

#include <cmath>

#include "cli/plot/plot.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "octavo/format/decode.h"

namespace octavo::cli {

const std::string_view kPlotStyle = R"(
text{font-family:"Source Sans 3","Segoe UI","Helvetica Neue",Arial,"DejaVu Sans",sans-serif;fill:#1b2430}
.mono,.name,.bit{font-family:"JetBrains Mono","SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
.name{font-size:34px;font-weight:700}
.note{font-size:16px;fill:#55606e}
.bit{font-size:14px;font-weight:600;fill:#fff}
.fact{font-size:12px;fill:#6b7684}
.value{font-size:18px;font-weight:600}
.exact{font-size:12px;fill:#6b7684}
.head{font-size:16px;font-weight:600}
.small{font-size:12px;fill:#55606e}
.tick{font-size:12.5px;fill:#55606e}
.flag{font-size:12.5px;font-weight:600}
.flag-sub{font-size:12.5px;font-weight:600;fill:#b8400b}
.row{font-size:15px;font-weight:600}
.in-cell{font-size:11px;fill:#fff}
.in-pale{font-size:11px;fill:#123170}
.in-orange{font-size:11px;fill:#7a2e08}
.paper{fill:#ffffff}
.card{fill:#f5f7fa}
.field-sign{fill:#5b6573}.field-exponent{fill:#1d4fb8}.field-mantissa{fill:#0f8a7e}
.axis{stroke:#55606e;stroke-width:1}
.grid{stroke:#e6eaef;stroke-width:1}
.limit{stroke:#9aa4b1;stroke-width:1;stroke-dasharray:4 3}
.lens{fill:#eef2f7}
.normal{stroke:#1d4fb8;stroke-width:1.5;fill:none}
.subnormal{stroke:#e2580f;stroke-width:1.5;fill:none}
.thin{stroke-width:.7}
.zero{stroke:#1b2430;stroke-width:2}
.bars-normal{fill:#1d4fb8}
.bars-subnormal{fill:#e2580f}
.area-normal{fill:#1d4fb8;fill-opacity:.14;stroke:#1d4fb8;stroke-width:1.3}
.area-subnormal{fill:#e2580f;fill-opacity:.16;stroke:#e2580f;stroke-width:1.3}
.lost{fill:#8b95a3;fill-opacity:.28}
.key-normal{fill:#1d4fb8}.key-subnormal{fill:#e2580f}
.cell-0{fill:#f7b58f}.cell-1{fill:#f0935c}.cell-2{fill:#a9c1ee}.cell-3{fill:#7ea1e2}.cell-4{fill:#4f7dd3}
.cell-5{fill:#2a5dc2}.cell-6{fill:#1d479b}.cell-7{fill:#123170}
.notch{stroke:#fff;stroke-width:.9;stroke-opacity:.75;fill:none}
.hover{fill:#000;fill-opacity:0}.hover:hover{fill-opacity:.12}
)";

std::vector<PlotValue> positive_values(const Format& format) {
  std::vector<PlotValue> values;
  for (std::uint32_t code = 0; code <= format.max_field(); ++code) {
    const double value = decode(format, code);
    if (value == 0) continue;
    const std::uint32_t mantissa = code & format.mantissa_mask();
    const int zeros = mantissa == 0 ? format.mantissa_bits : __builtin_ctz(mantissa);
    values.push_back({.value = value,
                      .code = code,
                      .subnormal = value < min_normal(format),
                      .weight = format.mantissa_bits == 0
                                    ? 1.0
                                    : static_cast<double>(zeros) / format.mantissa_bits});
  }
  return values;
}

std::string power_label(int exponent) {
  constexpr std::string_view kSuperscripts[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out = exponent < 0 ? "2⁻" : "2";
  for (const char digit : std::to_string(std::abs(exponent))) out += kSuperscripts[digit - '0'];
  return out;
}

std::string number_label(double value) {
  const std::string plain = short_number(value);
  if (plain == exact_decimal(value)) return plain;
  int exponent = 0;
  double odd = std::frexp(std::fabs(value), &exponent);
  for (; odd != std::floor(odd); odd *= 2) --exponent;
  constexpr double kLargestFactor = 1023;
  if (odd > kLargestFactor) return plain;
  return formatted("{}{}{}", value < 0 ? "-" : "", odd == 1 ? "" : formatted("{:g} · ", odd),
                   power_label(exponent));
}

}  // namespace octavo::cli
