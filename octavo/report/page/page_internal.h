// The parts of the HTML page of a CheckpointReport. Each returns markup that is complete in itself:
// without scripts everything can be read, the script only sorts, searches and jumps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/format/format.h"
#include "octavo/report/checkpoint_report.h"
#include "octavo/report/mix_result.h"

namespace octavo::page {

// Escapes untrusted text for markup or a quoted attribute; invisible characters (control
// characters, invalid UTF-8, bidirectional marks) are shown as \x00 or \u202e.
std::string escaped(std::string_view text);

// Numbers formatted for display, the same in every locale.
std::string fixed(double value, int digits);  // "31.53", "-", "inf"
std::string brief(double value);              // three digits: "0.000412", "1.2e-09"
std::string grouped(std::int64_t count);      // "1,234,567"
std::string bytes_text(std::uint64_t bytes);  // "1.50 GiB"
std::string share_text(double share);         // "0", "0.012 %"
std::string cosine_text(double cosine);       // as many nines as there are, and two digits more
std::string shape_text(const std::vector<std::int64_t>& shape);  // "4096 x 1024"
std::string signed_text(double decibels);                        // "+0.1", "-6.5", "0.0"
// What to paste after octavo quantize: markup of --recipe-for with its value in quotes of a shell.
std::string option_text(std::string_view recipe_for);

// The grade of a tensor, its colour everywhere on the page: how many decibels its SQNR is above
// what normal weights have in its format. 0: 12 dB below, or values are lost; kExpectedGrade: less
// than 1 dB away; the one before kExactGrade: 3 dB above or more; kExactGrade: no error at all.
inline constexpr int kExpectedGrade = 4, kExactGrade = 7;
[[nodiscard]] int grade_of(double above);
[[nodiscard]] double grade_begins(int grade);  // in decibels
[[nodiscard]] bool is_far_off(double above);   // by kFarFromNormal, either way: marked
// How many nines a cosine has, -log10(1 - cosine).
[[nodiscard]] double nines(double cosine);

// What tensors are held against. Where it is not known what to expect of one (both sides of a
// comparison are plain numbers), that is the median of all such tensors.
class Grading {
 public:
  explicit Grading(const CheckpointReport& report);
  [[nodiscard]] double expected_sqnr(const TensorReport& tensor) const;
  // Decibels above it; infinite where there is no error, or (below) where values are lost.
  [[nodiscard]] double above(const TensorReport& tensor) const;
  // The same by cosine, of which a nine is ten decibels.
  [[nodiscard]] double above_by_cosine(const TensorReport& tensor) const;
  // How many tensors are held against the median, and that.
  [[nodiscard]] std::int64_t unknown() const { return unknown_; }
  [[nodiscard]] double median_sqnr() const { return median_sqnr_; }

 private:
  std::int64_t unknown_ = 0;
  double median_sqnr_ = 0, median_nines_ = 0;
};

// Where a module stands: "model.layers" 3 "self_attn.q_proj"; a second number (an expert's) is "*".
struct Place {
  std::string stack, module;
  std::int64_t layer = -1;  // -1: not in a stack of layers
};
Place place_of(std::string_view module);

// The element format of a tensor, from the line that describes its scaling.
std::optional<Format> format_of(const TensorReport& tensor);

// The page around its body, which is markup, as is the footer.
// This one is that of pages about the errors of tensors.
inline constexpr std::string_view kWeightsFooter =
    "Made by octavo. SQNR: 10 log<sub>10</sub> of the sum of squared values over the sum of "
    "squared "
    "errors. Every number is per tensor and counts what is finite.";
std::string document(std::string_view title, std::string_view body,
                     std::string_view footer = kWeightsFooter);
// What a page about weight errors can know and what it cannot, in a paragraph.
std::string knowledge();
std::string style();
std::string script();
std::string summary(const CheckpointReport& report);
std::string legend();  // of the grades
std::string heat_maps(const CheckpointReport& report);
std::string histograms(const CheckpointReport& report);
// How recipes were chosen: the frontier as a chart, and a table of what got which.
std::string mix_section(const MixResult& mix);
// A table that the script sorts and searches; heads and rows are markup, `of` (its id) says of
// what.
std::string sortable_table(std::string_view heads, std::string_view rows, std::string_view of);
std::string head_cell(std::string_view name, std::string_view title, bool left = false);
std::string breakable(std::string_view name);  // escaped; may be broken after a dot
std::string tensor_table(const CheckpointReport& report);
std::string plain_table(const CheckpointReport& report);

}  // namespace octavo::page
