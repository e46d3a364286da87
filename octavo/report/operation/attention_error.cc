#include "octavo/report/operation/attention_error.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "octavo/base/error.h"
#include "octavo/base/philox.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention-report";
constexpr std::int64_t kRowsOfStages = 8;  // per head: scores and weights are as long as keys
constexpr std::int64_t kSignColumns = 128;

bool is_same_nan(double got, double exact) { return std::isnan(got) && std::isnan(exact); }

// Sums of a comparison of two arrays; what is NaN in both is left out.
struct Sums {
  std::int64_t count = 0;
  double error2 = 0.0, exact2 = 0.0, got2 = 0.0, product = 0.0, error = 0.0, largest = 0.0;

  void add(double got, double exact) {
    if (is_same_nan(got, exact)) return;  // a poisoned row is what was asked for
    const double distance = std::abs(got - exact);
    ++count;
    error += distance;
    error2 += distance * distance;
    exact2 += exact * exact;
    got2 += got * got;
    product += got * exact;
    if (!(distance <= largest || std::isnan(largest))) largest = distance;  // NaN stays
  }
  [[nodiscard]] double relative_l2() const {
    return error2 == 0.0 ? 0.0 : std::sqrt(error2 / exact2);
  }
  // 0 where one of them is nothing but zeros; NaN stays.
  [[nodiscard]] double cosine() const {
    return got2 == 0.0 || exact2 == 0.0 ? 0.0 : product / std::sqrt(got2 * exact2);
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

struct SeenKeys {
  std::int64_t begin = 0, end = 0;
};
SeenKeys seen_by(const AttentionMask& mask, const AttentionInputs& inputs,
                 const AttentionRange& row) {
  const auto batch = static_cast<std::size_t>(row.batch);
  const std::int64_t rows = mask.query_lengths.empty() ? inputs.q.shape()[2]
                                                       : mask.query_lengths[batch],
                     keys =
                         mask.key_lengths.empty() ? inputs.k.shape()[2] : mask.key_lengths[batch];
  if (row.first >= rows) return {};
  const std::int64_t place = row.first + (mask.bottom_right ? keys - rows : 0);
  const std::int64_t right = mask.causal ? 0 : mask.right;
  return {mask.left < 0 ? 0 : std::max<std::int64_t>(0, place - mask.left),
          right < 0 ? keys : std::min(keys, place + right + 1)};
}

// Scores of a row with the keys that it sees, less their mean unless there are sinks. A bias is not
// in them: it is the same on every rung.
std::vector<double> scores_of(const AttentionInputs& inputs, const AttentionRange& row,
                              const AttentionErrorOptions& options) {
  const AttentionMask& mask = options.mask;
  const double scale =
      options.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(inputs.q.shape()[3])));
  const std::int64_t kv = row.head / (inputs.q.shape()[1] / inputs.k.shape()[1]);
  const std::span<const float> q = row_of(inputs.q, row.batch, row.head, row.first);
  const SeenKeys seen = seen_by(mask, inputs, row);
  std::vector<double> scores;
  double mean = 0.0;
  for (std::int64_t key = seen.begin; key < seen.end; ++key) {
    const std::span<const float> k = row_of(inputs.k, row.batch, kv, key);
    double sum = 0.0;
    for (std::size_t d = 0; d < q.size(); ++d)
      sum += static_cast<double>(q[d]) * static_cast<double>(k[d]);
    const double score = options.soft_cap == 0.0
                             ? sum
                             : options.soft_cap * std::tanh(scale * sum / options.soft_cap);
    scores.push_back(score);
    mean += score / static_cast<double>(seen.end - seen.begin);
  }
  if (options.sinks.data != nullptr) return scores;
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
            .soft_cap = options.soft_cap,
            .sinks = options.sinks,
            .out = DType::f32,
            // automatic chooses per range of rows: for a sample of rows it would choose
            // differently.
            .ranges = rung == AttentionRung::automatic ? std::span<const AttentionRange>() : rows,
            .threads = options.threads,
            .backend = options.backend};
  }

  [[nodiscard]] bool fails(double got, double exactly) const {
    return !is_same_nan(got, exactly) &&
           !(std::abs(got - exactly) <= options.atol + options.rtol * std::abs(exactly));
  }
  [[nodiscard]] std::span<const double> exact_row(const Tensor& of,
                                                  const AttentionRange& row) const {
    const std::int64_t at = (row.batch * q.shape[1] + row.head) * q.shape[2] + row.first;
    return of.span<double>().subspan(static_cast<std::size_t>(at * v.shape[3]),
                                     static_cast<std::size_t>(v.shape[3]));
  }

  // Rows of stages by the rung that computed them; automatic: that of their range.
  [[nodiscard]] std::map<AttentionRung, std::vector<AttentionRange>> stage_rows_by_rung(
      AttentionRung rung, const AttentionReport& report) const {
    if (rung != AttentionRung::automatic) return {{rung, stage_rows}};
    std::map<AttentionRung, std::vector<AttentionRange>> rows_of;
    for (const AttentionRange& row : stage_rows)
      for (const AttentionChoice& choice : report.choices)
        if (choice.rows.batch == row.batch && choice.rows.head == row.head &&
            row.first >= choice.rows.first && row.first < choice.rows.first + choice.rows.count)
          rows_of[choice.rung].push_back(row);
    return rows_of;
  }

  [[nodiscard]] AttentionStages stages_of(AttentionRung asked,
                                          const AttentionReport& report) const {
    AttentionStages stages;
    Sums scores, weights;
    for (const auto& [rung, some] : stage_rows_by_rung(asked, report)) {
      AttentionOptions call = options_for(rung);
      call.ranges = some;
      const AttentionInputs own = attention_inputs(q, k, v, call);
      for (const double error :
           {distance(own.q, given.q), distance(own.k, given.k), distance(own.v, given.v)})
        if (!(error <= stages.inputs || std::isnan(stages.inputs))) stages.inputs = error;
      for (const AttentionRange& row : some) {
        const std::vector<double> got = scores_of(own, row, options),
                                  exactly = scores_of(given, row, options);
        for (std::size_t j = 0; j < got.size(); ++j) scores.add(got[j], exactly[j]);
      }
      const Tensor got = attention(q, k, signs, call);
      for (const AttentionRange& row : some) {
        const std::span<const float> a = row_of(got, row.batch, row.head, row.first),
                                     b = row_of(exact_signs, row.batch, row.head, row.first);
        for (std::size_t e = 0; e < a.size(); ++e)
          weights.add(static_cast<double>(a[e]), static_cast<double>(b[e]));
      }
    }
    stages.scores = scores.relative_l2();
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
    error.elements = static_cast<std::int64_t>(rows.size()) * v.shape[3];
    error.max_abs = sums.largest;
    error.mean_abs = sums.count > 0 ? sums.error / static_cast<double>(sums.count) : 0.0;
    error.relative_l2 = sums.relative_l2();
    error.cosine = sums.cosine();
    error.stages = stages_of(rung, report);
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
        "; expected [batch, heads, tokens, size]");
  check(options.rows >= 0, ErrorCode::invalid_argument, kOp, "got rows = ", options.rows,
        "; expected 0 for all, or how many of each head");
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
