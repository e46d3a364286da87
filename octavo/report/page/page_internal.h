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

// Quality grade of a tensor, 0 the worst, kGrades - 1 the best: its colour everywhere on the page.
inline constexpr int kGrades = 8;
struct Grading {
  double lowest = 0, step = 1;  // grade i begins at lowest + i * step
  double worst = 0, best = 0;   // of the tensors that have a number
  bool flat = false;            // all of them are alike, and have one colour
  [[nodiscard]] int grade(double value) const;
};
Grading sqnr_grading(const CheckpointReport& report);  // of decibels
// Of how many nines a cosine has, -log10(1 - cosine).
Grading cosine_grading(const CheckpointReport& report);
double nines(double cosine);

// Where a module stands: "model.layers" 3 "self_attn.q_proj"; a second number (an expert's) is "*".
struct Place {
  std::string stack, module;
  std::int64_t layer = -1;  // -1: not in a stack of layers
};
Place place_of(std::string_view module);

// The element format of a tensor, from the line that describes its scaling.
std::optional<Format> format_of(const TensorReport& tensor);

std::string style();
std::string script();
std::string summary(const CheckpointReport& report);
std::string heat_maps(const CheckpointReport& report);
std::string histograms(const CheckpointReport& report);
std::string tensor_table(const CheckpointReport& report);
std::string plain_table(const CheckpointReport& report);

}  // namespace octavo::page
