// Which colour a tensor has: how far it is from what normal weights have in its format, in steps
// that are the same on every page.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "octavo/report/median_internal.h"
#include "octavo/report/page/page_internal.h"

namespace octavo::page {
namespace {

// Decibels from where on a grade begins. 1 dB is within what shape, order and sampling make of
// normal weights; 3 dB are twice the squared error, 6 dB a bit, 12 dB two bits. Above, a tensor is
// not better than normal ones: 3 dB more need half of the energy in a few values that came out
// well, behind which the loss of the others does not show.
constexpr std::array<double, kExactGrade> kFrom{-INFINITY, -12, -6, -3, -1, 1, kFarFromNormal};

}  // namespace

double nines(double cosine) {
  return cosine >= 1 ? INFINITY : -std::log10(std::min(1 - cosine, 1.0));
}

int grade_of(double above) {
  if (std::isnan(above)) return 0;
  if (above == INFINITY) return kExactGrade;
  int grade = 0;
  while (grade + 1 < kExactGrade && above >= kFrom[static_cast<std::size_t>(grade + 1)]) ++grade;
  return grade;
}

double grade_begins(int grade) { return kFrom[static_cast<std::size_t>(grade)]; }

bool is_far_off(double above) {
  return std::isfinite(above) ? std::fabs(above) >= kFarFromNormal : above < 0;
}

Grading::Grading(const CheckpointReport& report) {
  std::vector<double> sqnrs, all_nines;
  for (const TensorReport& tensor : report.tensors) {
    if (!tensor.measured || !std::isnan(tensor.expected_sqnr)) continue;
    if (std::isfinite(tensor.metrics.sqnr)) sqnrs.push_back(tensor.metrics.sqnr);
    if (const double has = nines(tensor.metrics.cosine); std::isfinite(has))
      all_nines.push_back(has);
  }
  unknown_ = static_cast<std::int64_t>(sqnrs.size());
  median_sqnr_ = median(std::move(sqnrs));
  median_nines_ = median(std::move(all_nines));
}

double Grading::expected_sqnr(const TensorReport& tensor) const {
  return std::isnan(tensor.expected_sqnr) ? median_sqnr_ : tensor.expected_sqnr;
}

double Grading::above(const TensorReport& tensor) const {
  if (uncounted(tensor) > 0) return -INFINITY;
  if (tensor.metrics.sqnr == INFINITY) return INFINITY;
  return tensor.metrics.sqnr - expected_sqnr(tensor);
}

double Grading::above_by_cosine(const TensorReport& tensor) const {
  if (uncounted(tensor) > 0) return -INFINITY;
  const double has = nines(tensor.metrics.cosine);
  if (has == INFINITY) return INFINITY;
  return 10 * (has - (std::isnan(tensor.expected_cosine) ? median_nines_
                                                         : nines(tensor.expected_cosine)));
}

}  // namespace octavo::page
