// Reference norms and activations, by definition. docs/numerics/producers.md has the same formulas.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/produced_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {
namespace {

// Written so that nothing cancels in the negative tail: 1 + erf(z) would lose all digits there.
double gelu(double x) { return x * (0.5 * std::erfc(-x / std::numbers::sqrt2)); }

// 1/2 (1 + tanh(z)) is 1 / (1 + exp(-2z)), which does not cancel either.
double gelu_tanh(double x) {
  const double z = std::sqrt(2.0 * std::numbers::inv_pi) * (x + 0.044715 * (x * x * x));
  return x / (1.0 + std::exp(-2.0 * z));
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }

double relu(double x) { return x <= 0.0 ? 0.0 : x; }  // NaN stays

}  // namespace

double activated(ProducerKind kind, double x) {
  switch (kind) {
    case ProducerKind::gelu:
      return gelu(x);
    case ProducerKind::gelu_tanh:
      return gelu_tanh(x);
    case ProducerKind::silu:
      return silu(x);
    default:
      return relu(x);
  }
}

ProducedValues::ProducedValues(const Matrix& x, const Producer& producer)
    : x_(x), producer_(producer) {
  if (!producer.is_norm()) return;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const RowStatistics row_statistics = statistics_of(row);
    statistics_.push_back(row_statistics);
    if (producer.mean != nullptr) producer.mean[row] = static_cast<float>(row_statistics.mean);
    if (producer.inv_std != nullptr)
      producer.inv_std[row] = static_cast<float>(row_statistics.inv_std);
  }
}

ProducedValues::RowStatistics ProducedValues::statistics_of(std::int64_t row) const {
  // An empty row has the statistics of zeros.
  const auto count = static_cast<double>(std::max<std::int64_t>(x_.cols, 1));
  double mean = 0.0;
  if (producer_.kind == ProducerKind::layer_norm) {
    for (std::int64_t col = 0; col < x_.cols; ++col) mean += load_value(x_, row, col);
    mean /= count;
  }
  double squares = 0.0;
  for (std::int64_t col = 0; col < x_.cols; ++col) {
    const double distance = load_value(x_, row, col) - mean;
    squares += distance * distance;
  }
  return {mean, 1.0 / std::sqrt(squares / count + producer_.epsilon)};
}

double ProducedValues::normalized(std::int64_t row, std::int64_t col) const {
  const RowStatistics& of_row = statistics_[static_cast<std::size_t>(row)];
  double value = (load_value(x_, row, col) - of_row.mean) * of_row.inv_std;
  if (producer_.weight.data != nullptr) {
    const double weight = load_value(producer_.weight, 0, col);
    value *= producer_.zero_centred ? 1.0 + weight : weight;
  }
  if (producer_.bias.data != nullptr) value += load_value(producer_.bias, 0, col);
  return value;
}

float ProducedValues::at(std::int64_t row, std::int64_t col) const {
  if (producer_.is_norm()) return static_cast<float>(normalized(row, col));
  const double value = activated(producer_.kind, load_value(x_, row, col));
  if (!producer_.gated) return static_cast<float>(value);
  return static_cast<float>(value * load_value(x_, row, x_.cols / 2 + col));
}

void produce_matrix(const Exec&, const Matrix& x, const Producer& producer, const Matrix& out) {
  const FpEnvGuard guard;
  const ProducedValues values(x, producer);
  for (std::int64_t row = 0; row < out.rows; ++row)
    for (std::int64_t col = 0; col < out.cols; ++col)
      store_value(out, row, col, static_cast<double>(values.at(row, col)));
}

bool fuses(const QuantizeJob&) { return true; }

}  // namespace octavo::reference
