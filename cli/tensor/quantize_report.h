// What octavo quantize found, and the three ways to tell it: a table, JSON, a picture.
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

// The parts of a tensor that errors are compared by: tiles, or rows where one scale is for all.
struct Parts {
  bool are_tiles = false;
  const std::vector<ErrorSums>* sums = nullptr;
  [[nodiscard]] std::string_view word() const { return are_tiles ? "tile" : "row"; }
};
Parts parts_of(const QuantizeReport& report);

// Where a part is, as numpy would slice it: "[3, 224:256]".
std::string slice_of(const QuantizeReport& report, const Parts& parts, std::int64_t index);

// Indices of parts, those with most of the squared error first; at most `most`.
std::vector<std::int64_t> worst_parts(const Parts& parts, std::size_t most);
// The share of all squared error that a part has.
double error_share(const QuantizeReport& report, const ErrorSums& part);
// Half of all parts have a relative L2 error of at most this.
double median_relative_l2(const Parts& parts);

// One line that says where the error is, and what might help.
std::string verdict_of(const QuantizeReport& report);

// What was asked for but can do nothing here, or "".
std::string note_of(const QuantizeReport& report);

// A result that is not finite is in no metric, so it misses every limit.
bool misses(const QuantizeReport& report, const Gate& gate);

std::string table_of(const QuantizeReport& report);
nlohmann::ordered_json json_of(const QuantizeReport& report);
std::string plot_of(const QuantizeReport& report);

// "(3, 4) float32", and the dtype's name.
std::string shape_and_type(const QuantizeReport& report);

}  // namespace octavo::cli
