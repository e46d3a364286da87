#include "octavo/report/attention_error.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/base/philox.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention-report";
constexpr std::int64_t kRowsOfStages = 8;  // per head: scores and weights are as long as keys
constexpr std::int64_t kSignColumns = 128;

// Sums of a comparison of two arrays.
struct Sums {
  std::int64_t count = 0;
  double error2 = 0.0, exact2 = 0.0, got2 = 0.0, product = 0.0, error = 0.0, largest = 0.0;

  void add(double got, double exact) {
    const double distance = std::abs(got - exact);
    ++count;
    error += distance;
    error2 += distance * distance;
    exact2 += exact * exact;
    got2 += got * got;
    product += got * exact;
    largest = distance <= largest ? largest : distance;  // NaN stays
  }
  [[nodiscard]] double relative_l2() const {
    return error2 == 0.0 ? 0.0 : std::sqrt(error2 / exact2);
  }
};

std::vector<AttentionRange> spread(const Shape& q, std::int64_t rows) {
  std::vector<AttentionRange> ranges;
  const std::int64_t count = rows == 0 ? q[2] : std::min(rows, q[2]);
  for (std::int64_t batch = 0; batch < q[0]; ++batch)
    for (std::int64_t head = 0; head < q[1]; ++head)
      for (std::int64_t i = 0; i < count; ++i)
        ranges.push_back({batch, head, count > 1 ? i * (q[2] - 1) / (count - 1) : 0, 1});
  return ranges;
}

std::span<const float> row_of(const Tensor& tensor, std::int64_t batch, std::int64_t head,
                              std::int64_t row) {
  const Shape& shape = tensor.shape();
  return tensor.span<float>().subspan(
      static_cast<std::size_t>(((batch * shape[1] + head) * shape[2] + row) * shape[3]),
      static_cast<std::size_t>(shape[3]));
}

// Scores of a row, less their mean.
std::vector<double> scores_of(const AttentionInputs& inputs, const AttentionRange& row) {
  const std::int64_t kv = row.head / (inputs.q.shape()[1] / inputs.k.shape()[1]);
  const std::span<const float> q = row_of(inputs.q, row.batch, row.head, row.first);
  std::vector<double> scores;
  double mean = 0.0;
  for (std::int64_t key = 0; key < inputs.k.shape()[2]; ++key) {
    const std::span<const float> k = row_of(inputs.k, row.batch, kv, key);
    double sum = 0.0;
    for (std::size_t d = 0; d < q.size(); ++d)
      sum += static_cast<double>(q[d]) * static_cast<double>(k[d]);
    scores.push_back(sum);
    mean += sum / static_cast<double>(inputs.k.shape()[2]);
  }
  for (double& score : scores) score -= mean;
  return scores;
}

double distance(const Tensor& got, const Tensor& exact) {
  Sums sums;
  for (std::size_t i = 0; i < got.span<float>().size(); ++i)
    sums.add(static_cast<double>(got.span<float>()[i]),
             static_cast<double>(exact.span<float>()[i]));
  return sums.relative_l2();
}

// Signs at random, as V: the weights' error times them is on average as long as the error itself,
// in every column. Exact in every format.
Tensor random_signs(const Shape& k) {
  Tensor values = Tensor::values({k[0], k[1], k[2], kSignColumns}, DType::f32);
  const std::span<float> to = values.span<float>();
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = (philox4x32(0, i / 128)[i / 32 % 4] >> (i % 32) & 1u) != 0 ? 1.0F : -1.0F;
  return values;
}

struct Subject {
  const View &q, &k, &v;
  const AttentionErrorOptions& options;
  std::vector<AttentionRange> rows, stage_rows;
  Tensor exact{}, signs{}, exact_signs{};
  AttentionInputs given{};

  [[nodiscard]] AttentionOptions options_for(AttentionRung rung) const {
    return {.rung = rung,
            .rtol = options.rtol,
            .atol = options.atol,
            .mask = options.mask,
            .softmax_scale = options.softmax_scale,
            .out = DType::f32,
            .ranges = rows,
            .threads = options.threads,
            .backend = options.backend};
  }

  [[nodiscard]] bool fails(double got, double exactly) const {
    return !(std::abs(got - exactly) <= options.atol + options.rtol * std::abs(exactly));
  }
  [[nodiscard]] std::span<const double> exact_row(const Tensor& of,
                                                  const AttentionRange& row) const {
    const std::int64_t at = (row.batch * q.shape[1] + row.head) * q.shape[2] + row.first;
    return of.span<double>().subspan(static_cast<std::size_t>(at * v.shape[3]),
                                     static_cast<std::size_t>(v.shape[3]));
  }

  [[nodiscard]] AttentionStages stages_of(AttentionRung rung, const AttentionInputs& own) const {
    AttentionStages stages;
    AttentionOptions call = options_for(rung);
    call.ranges = stage_rows;
    stages.inputs =
        std::max({distance(own.q, given.q), distance(own.k, given.k), distance(own.v, given.v)});
    Sums scores, weights;
    for (const AttentionRange& row : stage_rows) {
      const std::vector<double> got = scores_of(own, row), exactly = scores_of(given, row);
      for (std::size_t j = 0; j < got.size(); ++j) scores.add(got[j], exactly[j]);
    }
    stages.scores = scores.relative_l2();
    const Tensor got = attention(q, k, signs, call);
    for (const AttentionRange& row : stage_rows) {
      const std::span<const float> a = row_of(got, row.batch, row.head, row.first),
                                   b = row_of(exact_signs, row.batch, row.head, row.first);
      for (std::size_t e = 0; e < a.size(); ++e)
        weights.add(static_cast<double>(a[e]), static_cast<double>(b[e]));
    }
    stages.weights = weights.relative_l2();
    return stages;
  }

  [[nodiscard]] AttentionRungError measure(AttentionRung rung) const {
    AttentionReport report;
    AttentionOptions call = options_for(rung);
    call.report = &report;
    const Tensor got = attention(q, k, v, call);
    AttentionRungError error{.rung = rung};
    const AttentionInputs own = attention_inputs(q, k, v, call);
    AttentionOptions exactly = options_for(AttentionRung::exact);
    exactly.out = DType::f64;
    const Tensor exact_of_own = attention(own.q, own.k, own.v, exactly);
    Sums sums;
    for (const AttentionRange& row : rows) {
      const std::span<const float> a = row_of(got, row.batch, row.head, row.first);
      const std::span<const double> b = exact_row(exact, row), c = exact_row(exact_of_own, row);
      for (std::size_t e = 0; e < a.size(); ++e) {
        const auto value = static_cast<double>(a[e]);
        sums.add(value, b[e]);
        error.failures += fails(value, b[e]);
        error.failures_of_own += fails(value, c[e]);
      }
    }
    error.elements = sums.count;
    error.max_abs = sums.largest;
    error.mean_abs = sums.count > 0 ? sums.error / static_cast<double>(sums.count) : 0.0;
    error.relative_l2 = sums.relative_l2();
    error.cosine = sums.got2 > 0.0 && sums.exact2 > 0.0
                       ? sums.product / std::sqrt(sums.got2 * sums.exact2)
                       : 0.0;
    error.stages = stages_of(rung, own);
    error.stages.output = error.relative_l2;
    if (rung == AttentionRung::automatic) {
      error.rows_by_rung.assign(static_cast<std::size_t>(AttentionRung::automatic) + 1, 0);
      for (const AttentionChoice& choice : report.choices)
        error.rows_by_rung[static_cast<std::size_t>(choice.rung)] += choice.rows.count;
      error.redone = report.redone;
    }
    return error;
  }
};

}  // namespace

std::vector<AttentionRungError> measure_attention(const View& q, const View& k, const View& v,
                                                  const AttentionErrorOptions& options) {
  check(q.shape.rank() == 4, ErrorCode::invalid_argument, kOp, "Q has shape ", to_string(q.shape),
        ", wanted [batch, heads, tokens, size]");
  check(options.rows >= 0, ErrorCode::invalid_argument, kOp, "got rows = ", options.rows,
        ", wanted 0 for all, or how many of each head");
  Subject subject{.q = q,
                  .k = k,
                  .v = v,
                  .options = options,
                  .rows = spread(q.shape, options.rows),
                  .stage_rows = spread(q.shape, kRowsOfStages)};
  AttentionOptions exact = subject.options_for(AttentionRung::exact);
  exact.out = DType::f64;
  subject.exact = attention(q, k, v, exact);
  subject.given = attention_inputs(q, k, v, exact);
  subject.signs = random_signs(k.shape);
  exact.out = DType::f32;
  exact.ranges = subject.stage_rows;
  subject.exact_signs = attention(q, k, subject.signs, exact);
  std::vector<AttentionRungError> errors;
  for (const AttentionRung rung : options.rungs) errors.push_back(subject.measure(rung));
  return errors;
}

}  // namespace octavo
