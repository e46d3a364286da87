// Sample rows of `auto`: computed in f32 before a rung is chosen, and used to probe rungs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/ops/attention/attention_call_internal.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

struct SampleRow {
  std::int64_t batch = 0, head = 0, row = 0;
  // 1 / sum p^2, with weights p: exp(2 lse(c) - lse(2c)) over the square of the keys' share beside
  // a sink; infinite where the row sees no key.
  double n_eff = 0.0;
  double share = 1.0;
  float lse = 0.0F;  // of the keys alone
};

class SampleRows {
 public:
  SampleRows(const AttentionCall& call, const Exec& exec) : call_(call), exec_(exec) {}

  // Computes these rows in f32. Rows are in the order of their heads.
  void sample(std::vector<SampleRow> rows);

  [[nodiscard]] std::span<const SampleRow> rows() const { return rows_; }
  [[nodiscard]] std::span<const float> exact(std::size_t i) const { return row_of(exact_, i); }

  // The same rows, or some of them, computed by another job (a rung): [which][channels].
  [[nodiscard]] std::vector<float> probed(AttentionJob job, std::span<const std::size_t> which);

 private:
  [[nodiscard]] std::span<const float> row_of(std::span<const float> of, std::size_t i) const {
    const auto width = static_cast<std::size_t>(call_.v.cols());
    return of.subspan(i * width, width);
  }
  [[nodiscard]] std::size_t place(const SampleRow& row) const {
    return static_cast<std::size_t>((row.batch * call_.q.heads() + row.head) * call_.q.rows() +
                                    row.row);
  }
  void take_share(std::size_t i, float share);
  std::vector<float> run(AttentionJob& job, std::span<const std::size_t> which);

  const AttentionCall& call_;
  const Exec& exec_;
  std::vector<SampleRow> rows_;
  std::vector<float> exact_;
  Tensor scratch_{};  // [B, H, queries, E], of which only the sample rows are written
};

}  // namespace octavo
