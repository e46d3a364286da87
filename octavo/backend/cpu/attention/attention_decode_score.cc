#include "octavo/backend/cpu/attention/attention_decode_score.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "octavo/backend/cpu/matrix_io.h"

namespace octavo::cpu {
namespace {

float dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kSums =
      16;  // independent sums, which compilers vectorise; n is a multiple
  float sums[kSums] = {};
  for (std::int64_t d = 0; d < n; d += kSums)
    for (std::int64_t j = 0; j < kSums; ++j) sums[j] += a[d + j] * b[d + j];
  float sum = 0.0F;
  for (const float one : sums) sum += one;
  return sum;
}

// An upper bound of what squares in f16 have lost.
float lost_of(std::int64_t size) { return static_cast<float>(size) * 0x1p-24F; }

}  // namespace

DecodeScores::DecodeScores(const Isa& isa, const DecodeKernels& decode_kernels,
                           const AttentionJob& job, std::int64_t batch, std::int64_t kv_head,
                           bool wide)
    : isa_(isa),
      kernels_(decode_kernels),
      job_(job),
      batch_(batch),
      kv_head_(kv_head),
      wide_(wide),
      operand_(job.k.at(batch, kv_head)),
      k_(isa, operand_, job.values, FactoredScales::row) {}

void DecodeScores::pack_query(std::int64_t r) {
  alignas(64) float q[kMaxHeadSize];
  const AttentionRows rows(isa_, job_.q.at(batch_, head_of(r)), job_.values, FactoredScales::row);
  if (job_.keys_of(batch_, row_of(r)).end == 0) return;
  rows.row(row_of(r), q);
  const float scale = rows.scale(row_of(r));
  nonfinite_[r] = !is_finite_row(q, rows.cols()) || !is_finite_row(&scale, 1);
  const auto amax = std::bit_cast<float>(amax_bits(q, rows.cols()));
  q_unit_[r] = kernels_.packed_type == PackedType::f32 || nonfinite_[r] ? 1.0F : decode_unit(amax);
  for (std::int64_t d = 0; d < rows.cols(); ++d) q[d] /= q_unit_[r];
  kernels_.pack_query(q, rows.cols(), packed_queries_[r]);
  q_norm_[r] = std::sqrt(static_cast<double>(dot(q, q, rows.cols()))) *
               static_cast<double>(q_unit_[r]) * std::abs(static_cast<double>(scale));
  unit_[r] = q_unit_[r] * (static_cast<float>(job_.softmax_scale * std::numbers::log2e) * scale);
}

void DecodeScores::select_keys(std::int64_t key, std::int64_t keys) {
  key_ = key;
  keys_ = keys;
  k_.scales(key, keys, k_scale_);
  if (kernels_.packed_type == PackedType::f16)
    for (std::int64_t i = 0; i < keys; ++i) k_scale_[i] *= kDecodeFactor;
}

double DecodeScores::norms_with(std::int64_t r, double key) const {
  return key * q_norm_[r] * std::abs(job_.softmax_scale);
}

// Compares by bits, which are ordered like the numbers and vectorise. A scale that is NaN or
// infinite makes the bound NaN or infinite: then norms are computed one by one, as they are where
// f32 has lost bits of their squares.
double DecodeScores::bound_of_norms(const float* most_row_squares, const DecodeSeen& seen) const {
  const float lost = lost_of(operand_.cols());
  std::int32_t most = 0;
  for (std::int64_t i = seen.begin; i < seen.end; ++i) {
    const float square = (most_row_squares[i] + lost) * k_scale_[i] * k_scale_[i];
    most = std::max(most, std::bit_cast<std::int32_t>(square));
  }
  const auto square = static_cast<double>(std::bit_cast<float>(most));
  return square >= 0x1p-100 ? std::sqrt(square) * (1.0 + 0x1p-20) : HUGE_VAL;
}

double DecodeScores::largest_norm(const DecodeSeen& seen) const {
  const Matrix& k = operand_.elements();
  const float lost = lost_of(k.cols);
  const std::int64_t count = seen.end - seen.begin;
  alignas(64) float row_squares[kDecodeKeys];
  kernels_.row_squares({element(k, key_ + seen.begin, 0), k.row_pitch, count, k.cols}, row_squares);
  double most = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto scale = static_cast<double>(k_scale_[seen.begin + i]);
    const double square = static_cast<double>(row_squares[i] + lost) * scale * scale;
    most = square > most ? square : most;  // a NaN scale makes any sum NaN anyway
  }
  return std::sqrt(most);
}

// Marks the rows whose scores are too large for sums in f16. Returns whether there is any.
bool DecodeScores::find_large(std::int64_t r, int count, const float* most_row_squares,
                              const DecodeSeen& seen, bool* large) {
  std::fill_n(large, count, wide_);
  if (wide_) return true;
  const double most = max_decode_norms(static_cast<double>(operand_.cols())),
               bound = bound_of_norms(most_row_squares, seen);
  double exact = -1.0;  // not known: computed where the bound is too large
  bool any = false;
  for (int g = 0; g < count; ++g) {
    double norms = norms_with(r + g, bound);
    if (norms > most) {
      if (exact < 0.0) exact = largest_norm(seen);
      norms = std::min(norms, norms_with(r + g, exact));
    }
    any |= large[g] = norms > most;
    if (!large[g]) norms_[r + g] = std::max(norms_[r + g], norms);
  }
  return any;
}

void DecodeScores::score(std::int64_t r, int count, const DecodeSeen& seen,
                         float (*score)[kDecodeKeys]) {
  float* scores[kMaxDecodeRows];
  const std::byte* queries[kMaxDecodeRows];
  bool nonfinite = false;
  for (int g = 0; g < count; ++g) {
    scores[g] = score[g];
    queries[g] = packed_queries_[r + g];
    nonfinite |= nonfinite_[r + g];
  }
  const Matrix& k = operand_.elements();
  alignas(64) float most_row_squares[kDecodeKeys];
  if (nonfinite || !kernels_.dots({element(k, key_, 0), k.row_pitch, keys_, k.cols}, queries, count,
                                  scores, most_row_squares)) {
    if (count == 1) return score_nonfinite(r, score[0]);
    // Other rows may be finite.
    for (int g = 0; g < count; ++g) this->score(r + g, 1, seen, score + g);
    return;
  }
  bool large[kMaxDecodeRows];
  if (kernels_.row_squares != nullptr && find_large(r, count, most_row_squares, seen, large))
    score_wide(r, count, large, score);
  for (int g = 0; g < count; ++g)
    for (std::int64_t i = 0; i < keys_; ++i) score[g][i] *= k_scale_[i] * unit_[r + g];
}

// Dots in f32, of the operands of `dots`: packed elements of the query, and codes / kDecodeFactor.
void DecodeScores::score_wide(std::int64_t r, int count, const bool* large,
                              float (*score)[kDecodeKeys]) const {
  alignas(64) float q[kMaxDecodeRows][kMaxHeadSize], k[kMaxHeadSize];
  for (int g = 0; g < count; ++g) {
    const AttentionRows rows(isa_, job_.q.at(batch_, head_of(r + g)), job_.values,
                             FactoredScales::row);
    rows.row(row_of(r + g), q[g]);
    for (std::int64_t d = 0; d < rows.cols(); ++d) q[g][d] /= q_unit_[r + g];
  }
  for (std::int64_t i = 0; i < keys_; ++i) {
    k_.row(key_ + i, k);
    for (int g = 0; g < count; ++g)
      if (large[g]) score[g][i] = dot(q[g], k, k_.cols()) / kDecodeFactor;
  }
}

// Scores of non-finite rows or keys, by definition in f64.
void DecodeScores::score_nonfinite(std::int64_t r, float* score) const {
  alignas(64) float q[kMaxHeadSize], k[kMaxHeadSize];
  const AttentionRows rows(isa_, job_.q.at(batch_, head_of(r)), job_.values, FactoredScales::none),
      all(isa_, operand_, job_.values, FactoredScales::none);
  rows.row(row_of(r), q);
  for (std::int64_t i = 0; i < keys_; ++i) {
    all.row(key_ + i, k);
    double sum = 0.0;
    for (std::int64_t d = 0; d < rows.cols(); ++d)
      sum += static_cast<double>(q[d]) * static_cast<double>(k[d]);
    score[i] = static_cast<float>(sum * job_.softmax_scale * std::numbers::log2e);
  }
}

}  // namespace octavo::cpu
