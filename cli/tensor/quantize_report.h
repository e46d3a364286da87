// The results of octavo quantize, as a table, JSON and a plot.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "octavo/quant/scaling.h"
#include "octavo/report/gate.h"
#include "octavo/report/metrics.h"
#include "octavo/tensor/view.h"

namespace octavo::cli {

struct QuantizeReport {
  std::string input;
  Shape shape{};
  DType dtype = DType::f32;
  Scaling scaling{};
  ErrorMetrics metrics{};  // with rows, tiles and histograms
  Shape tile_grid{};       // of metrics.tiles
  std::int64_t nbytes = 0;
  std::vector<Gate> gates{};
  double seconds = 0;
};

// The parts of a tensor whose errors are compared: tiles, or rows where the scale is per-tensor.
struct Parts {
  bool are_tiles = false;
  const std::vector<ErrorSums>* sums = nullptr;
  [[nodiscard]] std::string_view word() const { return are_tiles ? "tile" : "row"; }
};
Parts parts_of(const QuantizeReport& report);

// The position of a part as a numpy slice: "[3, 224:256]".
std::string slice_of(const QuantizeReport& report, const Parts& parts, std::int64_t index);

// Indices of parts, those with most of the squared error first; at most `most`.
std::vector<std::int64_t> worst_parts(const Parts& parts, std::size_t most);
// The fraction of the total squared error in a part.
double error_share(const QuantizeReport& report, const ErrorSums& part);
// Median over parts of the relative L2 error.
double median_relative_l2(const Parts& parts);

// One line on where the error is, and what might help.
std::string verdict_of(const QuantizeReport& report);

// A note on options that have no effect here, or "".
std::string note_of(const QuantizeReport& report);

// A non-finite result is in no metric, so it misses every limit.
bool misses(const QuantizeReport& report, const Gate& gate);

std::string table_of(const QuantizeReport& report);
nlohmann::ordered_json json_of(const QuantizeReport& report);
std::string plot_of(const QuantizeReport& report);

// "(3, 4) float32", and the dtype's name.
std::string shape_and_type(const QuantizeReport& report);

}  // namespace octavo::cli
