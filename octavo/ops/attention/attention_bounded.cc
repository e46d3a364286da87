#include "octavo/ops/attention/attention_bounded_internal.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "octavo/base/running_extremes.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/ops/attention/attention_error_model_internal.h"
#include "octavo/ops/attention/attention_operand_norms_internal.h"

namespace octavo {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Smoothing and the Hadamard transform are in f32: a rounding for each of its stages (which keep
// norms, but for a factor that the last step undoes), two for the factor, one for the mean, and one
// where values are f64.
double preparation_error(const AttentionCall& call) {
  double stages = 0.0;
  for (std::int64_t n = 1; call.q.cols() % (2 * n) == 0; n *= 2) stages += 1.0;
  return (stages + 4.0) * 0x1p-24 * 1.01;
}

NormedOperand normed(const AttentionStack& given, const Tensor& prepared,
                     const QuantizedTensor& codes, const Tensor& halves,
                     const AttentionOperand& used, double error) {
  NormedOperand operand{.given = given.operand()};
  if (prepared.owner() != nullptr) {
    operand.given = AttentionStack(Operand(prepared), "attention", "a copy").operand();
    operand.prepared = error;
  }
  if (codes.rowwise.exists() || halves.owner() != nullptr) operand.used = &used;
  return operand;
}

// What smoothing takes from a row is of f64 values, and rounded before.
double largest_mean(const AttentionCall& call, const RungInputs& inputs) {
  if (inputs.mean.owner() == nullptr || call.k.elements().dtype != DType::f64) return 0.0;
  double most = 0.0;
  const std::span<const float> numbers = inputs.mean.span<float>();
  const auto cols = static_cast<std::size_t>(call.k.cols());
  for (std::size_t at = 0; at < numbers.size(); at += cols) {
    double squares = 0.0;
    for (std::size_t d = 0; d < cols; ++d)
      squares += static_cast<double>(numbers[at + d]) * static_cast<double>(numbers[at + d]);
    most = std::max(most, squares);
  }
  return std::sqrt(most);
}

float rounded_up(double bound) { return std::nextafter(static_cast<float>(bound), HUGE_VALF); }

float* numbers_of(const View& view) { return static_cast<float*>(view.data); }

// The largest magnitude of a row of bf16 or f16, whose bits are ordered like magnitudes.
double largest_output(const Matrix& out, std::int64_t row) {
  const auto* const first = static_cast<const std::byte*>(out.data) + row * out.row_pitch;
  std::uint16_t most = 0;
  for (std::int64_t e = 0; e < out.cols; ++e) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, first + e * out.col_stride, sizeof bits);
    most = std::max<std::uint16_t>(most, bits & 0x7FFFU);
  }
  return decode(out.dtype == DType::bf16 ? bf16_format : f16_format, most);
}

BoundTerms terms_with(const AttentionCall& call, const AttentionJob& job,
                      const AttentionRounding& kernels) {
  return {.softmax_scale = job.softmax_scale,
          .soft_cap = job.soft_cap,
          .head_size = static_cast<double>(call.q.cols()),
          .deviations = call.options.probabilistic_bound.data != nullptr
                            ? deviations_for(static_cast<double>(call.v.cols()))
                            : 0.0,
          .has_sink = job.sinks.exist(),
          .kernels = kernels};
}

// The rows of a job that has run.
class Bounder {
 public:
  Bounder(const AttentionCall& call, const RungInputs& inputs, const AttentionJob& job,
          const Exec& exec)
      : options_(call.options),
        job_(job),
        terms_(terms_with(call, job, attention_rounding(exec, call.options, job))),
        mean_(largest_mean(call, inputs) * 0x1p-24),
        norms_(call,
               normed(call.q, inputs.prepared_q, inputs.q, inputs.halves_of_q, job.q,
                      preparation_error(call)),
               normed(call.k, inputs.prepared_k, inputs.k, inputs.halves_of_k, job.k,
                      preparation_error(call)),
               normed(call.v, {}, inputs.v, inputs.halves_of_v, job.v, 0.0), job.values, exec) {}

  void write(const AttentionRange& range) const {
    for (std::int64_t row = range.first; row < range.first + range.count; ++row)
      write(range.batch, range.head, row);
  }

 private:
  void write(std::int64_t batch, std::int64_t head, std::int64_t row) const {
    const AttentionJob::Keys seen = job_.keys_of(batch, row);
    const std::int64_t at = (batch * job_.heads + head) * job_.queries + row;
    const auto largest = static_cast<double>(job_.largest_weight[at]);
    RowBounds bounds;
    if (largest != largest) {  // a sink poisons rows that see no key, too
      bounds = {.certified = kInfinity, .probabilistic = kInfinity};
    } else if (seen.begin < seen.end) {
      const std::int64_t kv_head = job_.kv_head(head);
      KeyNorms keys = norms_.keys(batch, kv_head, seen.end);
      keys.error += mean_;
      bounds = row_bounds(terms_, norms_.query(batch, head, row), keys,
                          norms_.values(batch, kv_head, seen.end),
                          {.keys = static_cast<double>(seen.end - seen.begin),
                           .least = largest,
                           .largest = largest,
                           .squares = static_cast<double>(job_.weight_squares[at])},
                          bias_magnitude(job_, batch, head, row));
      const DType out = job_.out.first.values.dtype;
      if (out == DType::bf16 || out == DType::f16) {
        const double rounding =
            output_rounding(out, largest_output(job_.out.at(batch, head).values, row));
        bounds.certified += rounding;
        bounds.probabilistic += rounding;
      }
    }
    const auto put = [&](const View& view, double bound) {
      if (view.data != nullptr)
        numbers_of(view)[at] = bound == 0.0 ? 0.0F : rounded_up(bound == bound ? bound : kInfinity);
    };
    put(options_.bound, bounds.certified);
    put(options_.probabilistic_bound, bounds.probabilistic);
  }

  const AttentionOptions& options_;
  const AttentionJob& job_;
  BoundTerms terms_;
  double mean_;
  AttentionNorms norms_;
};

}  // namespace

bool wants_bounds(const AttentionOptions& options) {
  return options.bound.data != nullptr || options.probabilistic_bound.data != nullptr;
}

std::optional<BoundTerms> bound_terms(const AttentionCall& call, AttentionRung rung,
                                      const Exec& exec) {
  const RungInputs inputs = planned_inputs(call, rung, exec);
  AttentionJob job = inputs.job;
  const AttentionRange none{};
  AttentionRounding most;
  for (const bool has_ranges : {false, true}) {
    job.ranges = has_ranges ? &none : nullptr;
    job.range_count = has_ranges ? 1 : 0;
    const std::optional<AttentionRounding> one = known_rounding(exec, call.options, job);
    if (!one) return std::nullopt;
    raise(most.unit, one->unit);
    raise(most.scores, one->scores);
    raise(most.weights, one->weights);
    raise(most.lost, one->lost);
    raise(most.sums, one->sums);
    raise(most.flushed, one->flushed);
  }
  return terms_with(call, job, most);
}

void require_bounds(const AttentionCall& call, const Exec& exec) {
  const AttentionRung rung =
      call.options.rung == AttentionRung::automatic ? kRungsByCost.back() : call.options.rung;
  const RungInputs inputs = planned_inputs(call, rung, exec);
  (void)attention_rounding(exec, call.options, inputs.job);
}

BoundedRungs::BoundedRungs(const AttentionCall& call, const Exec& exec) {
  if (!wants_bounds(call.options)) return;
  const bool has_codes = call.q.is_quantized() || call.k.is_quantized();
  for (const AttentionRung rung : kRungsByCost) {
    if (rung == AttentionRung::balanced && has_codes) continue;  // it takes none
    if (!bound_terms(call, rung, exec)) without_.push_back(rung);
  }
}

double bias_magnitude(const AttentionJob& job, std::int64_t batch, std::int64_t head,
                      std::int64_t row) {
  if (job.bias.first == nullptr) return 0.0;
  const AttentionJob::Keys seen = job.keys_of(batch, row);
  const float* const numbers = job.bias.at(batch, head, row);
  float most = -std::numeric_limits<float>::infinity();
  for (std::int64_t key = seen.begin; key < seen.end; ++key) {
    const float number = numbers[key * job.bias.key];
    if (number != number) return kInfinity;
    most = std::max(most, number);
  }
  if (most == -std::numeric_limits<float>::infinity()) return 0.0;  // all keys are masked
  // Without a bias at all there is no rounding either: never 0 with one.
  return std::abs(static_cast<double>(most)) * std::abs(static_cast<double>(job.bias.factor)) +
         std::numeric_limits<double>::min();
}

double least_output_rounding(DType out) {
  return out == DType::f16 ? 0x1p-25 : out == DType::bf16 ? 0x1p-134 : 0.0;
}

double output_rounding(DType out, double magnitude) {
  const double unit = out == DType::bf16 ? 0x1p-8 : out == DType::f16 ? 0x1p-11 : 0.0;
  return unit / (1.0 - unit) * magnitude * (1.0 + 1e-6) + least_output_rounding(out);
}

void run_bounded(const AttentionCall& call, const RungInputs& inputs, AttentionJob job,
                 const Exec& exec) {
  if (!wants_bounds(call.options)) return run_attention(exec, call.options, job);
  const auto rows = static_cast<std::size_t>(job.batches * job.heads * job.queries);
  std::vector<float> largest, squares(rows);
  if (job.largest_weight == nullptr) {
    largest.resize(rows);
    job.largest_weight = largest.data();
  }
  job.weight_squares = squares.data();
  run_attention(exec, call.options, job);
  const Bounder bounder(call, inputs, job, exec);
  if (job.ranges != nullptr) {
    for (std::int64_t i = 0; i < job.range_count; ++i) bounder.write(job.ranges[i]);
    return;
  }
  for (std::int64_t batch = 0; batch < job.batches; ++batch)
    for (std::int64_t head = 0; head < job.heads; ++head)
      bounder.write({.batch = batch, .head = head, .first = 0, .count = job.queries});
}

}  // namespace octavo
