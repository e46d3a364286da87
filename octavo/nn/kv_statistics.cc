#include "octavo/nn/kv_statistics.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/running_extremes.h"

namespace octavo {
namespace {

const float* row_of(const View& values, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return reinterpret_cast<const float*>(static_cast<const std::byte*>(values.data) +
                                        batch * values.strides[0] + head * values.strides[1] +
                                        row * values.strides[2]);
}

}  // namespace

KvStatistics::KvStatistics(std::int64_t batches, std::int64_t heads, std::int64_t size)
    : heads_(heads), of_(static_cast<std::size_t>(batches * heads)) {
  for (OfHead& of : of_) of.channels.assign(static_cast<std::size_t>(size), 0.0);
  clear();
}

void KvStatistics::OfHead::clear() {
  const std::size_t size = channels.size();
  *this = {.channels = std::vector<double>(size, 0.0), .peaks = std::vector<double>(size, 0.0)};
}

void KvStatistics::OfHead::add(const float* row) {
  double of_row = 0.0;
  for (std::size_t e = 0; e < channels.size(); ++e) {
    const auto number = static_cast<double>(row[e]);
    channels[e] += number * number;
    peaks[e] = std::max(peaks[e], channels[e]);
    of_row += number * number;
    raise(amax, std::abs(number));
  }
  raise(row_squares, of_row);
  ++tokens;
}

void KvStatistics::add(const View& values, std::span<const std::int64_t> counts) {
  for (std::size_t at = 0; at < of_.size(); ++at) {
    const auto batch = static_cast<std::int64_t>(at) / heads_,
               head = static_cast<std::int64_t>(at) % heads_;
    const std::int64_t count =
        counts.empty() ? values.shape[2] : counts[static_cast<std::size_t>(batch)];
    for (std::int64_t token = 0; token < count; ++token)
      of_[at].add(row_of(values, batch, head, token));
  }
}

bool KvStatistics::drop(const View& values, std::int64_t batch) {
  // Each of 2^k roundings of a sum is off by 2^-53 of its peak at most: of a million tokens 2^-13
  // of what is left here.
  constexpr double kLeast = 0x1p-20;
  bool good = true;
  for (std::int64_t head = 0; head < heads_; ++head) {
    OfHead& of = of_[static_cast<std::size_t>(batch * heads_ + head)];
    for (std::int64_t token = 0; token < values.shape[2]; ++token) {
      const float* const row = row_of(values, 0, head, token);
      for (std::size_t e = 0; e < of.channels.size(); ++e) {
        const auto number = static_cast<double>(row[e]);
        of.channels[e] -= number * number;
      }
    }
    of.tokens -= values.shape[2];
    for (std::size_t e = 0; e < of.channels.size(); ++e)  // NaN stays
      if (of.channels[e] < kLeast * of.peaks[e]) good = false;
  }
  return good;
}

void KvStatistics::count_again(const View& values, std::int64_t batch) {
  for (std::int64_t head = 0; head < heads_; ++head) {
    OfHead& of = of_[static_cast<std::size_t>(batch * heads_ + head)];
    of.clear();
    for (std::int64_t token = 0; token < values.shape[2]; ++token)
      of.add(row_of(values, 0, head, token));
  }
}

void KvStatistics::clear() {
  for (OfHead& of : of_) of.clear();
}

std::vector<AttentionStatistics> KvStatistics::all() const {
  std::vector<AttentionStatistics> result;
  result.reserve(of_.size());
  for (const OfHead& of : of_) {
    AttentionStatistics one{.row_squares = of.row_squares, .amax = of.amax};
    for (const double squares : of.channels) {
      one.mean_squares += squares;
      raise(one.channel_squares, squares);
    }
    if (of.tokens > 0) {
      one.mean_squares /= static_cast<double>(of.tokens);
      one.channel_squares /= static_cast<double>(of.tokens);
    }
    result.push_back(one);
  }
  return result;
}

}  // namespace octavo
