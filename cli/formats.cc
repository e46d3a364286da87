// octavo formats: limits of all named formats, every code of one, and pictures of both.

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/plot/plot.h"
#include "cli/terminal/terminal.h"
#include "cli/text/format_facts.h"
#include "cli/text/formatted.h"
#include "cli/text/json_text.h"
#include "cli/text/names.h"
#include "cli/text/number_text.h"
#include "cli/text/output_name.h"
#include "cli/usage.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo formats                              limits of every named format
  octavo formats e4m3fn                       every code of one, with its value
  octavo formats e3m3 --plot e3m3.svg         any ExMy of up to 16 bits, as a picture
  octavo formats --plot formats.svg           range and precision of all, side by side
  octavo formats e2m1fn --json                for programs

A name is e<E>m<M>, then b<N> for bias N, then fn (no Inf), fnuz (no Inf, one zero) or fnu
(unsigned): e5m2, e4m3fn, e4m3b11fnuz, e8m0fnu.)";

std::string joined_or(const std::vector<std::string>& parts, std::string_view none) {
  return parts.empty() ? std::string(none) : joined(parts, " ");
}

void print_table(const std::vector<FormatFacts>& formats) {
  const Style style(stdout);
  constexpr const char* kRow =
      "{:<12} {:>4} {:>2} {:>2} {:>4}  {:>9} {:>10} {:>12} {:>8}  {:<21} {:<3} {:<3} {:>6}  {}\n";
  print(
      style.bold(formatted(kRow, "name", "bits", "E", "M", "bias", "max", "min normal",
                           "min positive", "epsilon", "NaN", "Inf", "-0", "values", "what it is")));
  for (const FormatFacts& facts : formats) {
    const Format& format = facts.format;
    std::string row =
        formatted(kRow, facts.name, format.bits(), format.exponent_bits, format.mantissa_bits,
                  format.bias, short_number(facts.max), short_number(facts.min_normal),
                  short_number(facts.min_positive), short_number(facts.epsilon),
                  joined_or(facts.nan_ranges, "no"), format.has_inf ? "yes" : "no",
                  format.has_negative_zero() ? "yes" : "no", facts.finite_values, facts.note);
    print(style.accent(row.substr(0, facts.name.size())) + row.substr(facts.name.size()));
  }
}

// 0.015625 (2^-6) where both say something.
std::string with_power(double value) {
  int exponent = 0;
  const std::string plain = short_number(value);
  const bool adds =
      is_power_of_two(value, &exponent) && plain.find('^') == std::string::npos && value != 1;
  return adds ? formatted("{} (2^{})", plain, exponent) : plain;
}

void print_summary(const FormatFacts& facts, const Style& style) {
  const Format& format = facts.format;
  print(style.bold(facts.name) + (facts.note.empty() ? "" : "  " + facts.note) + "\n");
  std::string fields = format.is_signed ? "1 sign, " : "no sign, ";
  fields += format.twos_complement
                ? formatted("{} integer, two's complement", format.mantissa_bits)
                : formatted("{} exponent, {} mantissa; bias {}", format.exponent_bits,
                            format.mantissa_bits, format.bias);
  print(formatted("{} bits: {}\n", format.bits(), fields));
  print(formatted("max {}, min normal {}, min positive {}, epsilon {}\n", with_power(facts.max),
                  with_power(facts.min_normal), with_power(facts.min_positive),
                  with_power(facts.epsilon)));
  print(formatted("{} finite values in {} codes; NaN {}; Inf {}; -0 {}\n\n",
                  grouped(facts.finite_values), grouped(facts.codes),
                  joined_or(facts.nan_ranges, "no"), format.has_inf ? "yes" : "no",
                  format.has_negative_zero() ? "yes" : "no"));
}

std::string styled(const Style& style, CodeClass code_class, const std::string& line) {
  switch (code_class) {
    case CodeClass::zero:
      return style.dim(line);
    case CodeClass::subnormal:
      return style.warn(line);
    case CodeClass::inf:
    case CodeClass::nan:
      return style.bad(line);
    case CodeClass::normal:
      break;
  }
  return line;
}

void print_codes(const FormatFacts& facts) {
  const Style style(stdout);
  const Format& format = facts.format;
  print_summary(facts, style);
  const std::string heading = bits_heading(format);
  std::size_t widest = 5;
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code)
    widest = std::max(widest, exact_decimal(decode(format, code)).size());
  const auto row = [&](std::string_view code, std::string_view bits, std::string_view value,
                       std::string_view reading, std::string_view code_class) {
    return formatted("{:<6}  {}  {:<{}}  {:<18}  {}", code, bits, value, widest, reading,
                     code_class);
  };
  print(style.bold(row("code", heading, "value", "is", "class")) + "\n");
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code) {
    const CodeClass code_class = class_of(format, code);
    print(
        styled(style, code_class,
               row(hex_of(format, code), bits_of(format, code), exact_decimal(decode(format, code)),
                   reading_of(format, code), name_of(code_class))) +
        "\n");
  }
}

nlohmann::ordered_json json_of_codes(const Format& format) {
  nlohmann::ordered_json codes = nlohmann::ordered_json::array();
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code) {
    const CodeClass code_class = class_of(format, code);
    const double value = decode(format, code);
    const bool finite = code_class != CodeClass::inf && code_class != CodeClass::nan;
    codes.push_back({{"code", code},
                     {"hex", hex_of(format, code)},
                     {"bits", bits_of(format, code)},
                     {"value", finite ? nlohmann::ordered_json(value)
                                      : nlohmann::ordered_json(nullptr)},  // JSON has no NaN
                     {"text", exact_decimal(value)},
                     {"class", name_of(code_class)}});
  }
  return codes;
}

int run_formats(const std::string& name, const std::string& plot, const Globals& globals) {
  std::vector<FormatFacts> formats;
  if (name.empty()) {
    for (const NamedFormat& named : kNamedFormats) formats.push_back(facts_of(named.format));
  } else {
    formats.push_back(facts_of(format_argument("[formats]", name)));
  }
  if (!plot.empty()) {
    check_ending("formats", "--plot", output_name("formats", plot), ".svg");
    write_whole_file("formats", plot,
                     name.empty() ? plot_formats(formats) : plot_format(formats[0]));
    say(formatted("wrote {}", plot));
  }
  if (globals.json) {
    nlohmann::ordered_json out;
    if (name.empty()) {
      out["formats"] = nlohmann::ordered_json::array();
      for (const FormatFacts& facts : formats) out["formats"].push_back(json_of(facts));
    } else {
      out = json_of(formats[0]);
      out["table"] = json_of_codes(formats[0].format);
    }
    print(json_text(out));
  } else if (plot.empty()) {
    name.empty() ? print_table(formats) : print_codes(formats[0]);
  }
  return kGood;
}

}  // namespace

Command add_formats(CLI::App& program, Globals& globals) {
  CLI::App* app = add_subcommand(program, globals, "formats",
                                 "Show what formats can hold: limits, codes, pictures", kExamples);
  auto name = std::make_shared<std::string>(), plot = std::make_shared<std::string>();
  app->add_option("NAME", *name, "One format: a name from the table or any ExMy")->type_name("");
  app->add_option("--plot", *plot, "Write a picture (SVG) of the number line instead of the table")
      ->type_name("FILE");
  return {app, [name, plot, &globals] { return run_formats(*name, *plot, globals); }};
}

}  // namespace octavo::cli
