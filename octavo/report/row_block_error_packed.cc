#include <charconv>
#include <system_error>
#include <utility>

#include "octavo/report/row_block_error_packed_internal.h"

namespace octavo {
namespace {

constexpr int kBase = 36;
constexpr std::size_t kMaxCounts = 65536;

// Each member once, for both directions.
template <typename Error, typename Number, typename Count, typename Counts>
void for_each_member(Error& error, const Number& number, const Count& count, const Counts& counts) {
  number(error.error2);
  number(error.value2);
  number(error.result2);
  number(error.max_abs);
  number(error.max_relative);
  number(error.amax);
  number(error.scales.least);
  number(error.scales.most);
  count(error.elements);
  count(error.count);
  count(error.finite);
  count(error.saturated);
  count(error.flushed);
  count(error.zeros);
  count(error.result_zeros);
  count(error.input.nan);
  count(error.input.inf);
  count(error.result.nan);
  count(error.result.inf);
  count(error.scales.count);
  count(error.scales.nan);
  count(error.scales.zero);
  count(error.nbytes);
  counts(error.values);
  counts(error.results);
  counts(error.scale_counts);
  counts(error.codes);
}

template <typename... Format>
void append(std::string& out, Format... number) {
  char digits[40];
  const auto [end, problem] = std::to_chars(digits, digits + sizeof digits, number...);
  if (!out.empty()) out += ' ';
  out.append(digits, end);
}

// How many there are, then each, a run of n zeros as -n.
template <typename Counts>
void append_counts(std::string& out, const Counts& counts) {
  append(out, static_cast<std::int64_t>(counts.size()), kBase);
  for (std::size_t i = 0; i < counts.size();) {
    std::size_t end = i;
    while (end < counts.size() && counts[end] == 0) ++end;
    if (end > i) {
      append(out, -static_cast<std::int64_t>(end - i), kBase);
      i = end;
    } else {
      append(out, counts[i++], kBase);
    }
  }
}

class Reading {
 public:
  explicit Reading(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  template <typename Number, typename... Format>
  bool next(Number& number, Format... format) {
    while (at_ != end_ && *at_ == ' ') ++at_;
    const auto [after, problem] = std::from_chars(at_, end_, number, format...);
    at_ = after;
    good_ = good_ && problem == std::errc{};
    return good_;
  }

  template <typename Counts>
  void read_counts(Counts& counts) {
    std::int64_t size = 0, count = 0;
    if (!next(size, kBase)) return;
    good_ = size >= 0 && size <= static_cast<std::int64_t>(kMaxCounts);
    if constexpr (requires { counts.resize(1); }) {
      if (good_) counts.assign(static_cast<std::size_t>(size), 0);
    }
    for (std::int64_t i = 0; i < size && good_ && next(count, kBase);) {
      if (count >= 0 && i < static_cast<std::int64_t>(counts.size()))
        counts[static_cast<std::size_t>(i)] = count;
      good_ = count > -static_cast<std::int64_t>(kMaxCounts) - 1;
      i += count >= 0 ? 1 : -count;
    }
  }

  [[nodiscard]] bool good() const { return good_; }

 private:
  const char *at_, *end_;
  bool good_ = true;
};

}  // namespace

std::string packed_row_block(const RowBlockError& row_block) {
  std::string out;
  for_each_member(
      row_block, [&](double value) { append(out, value); },
      [&](std::int64_t value) { append(out, value, kBase); },
      [&](const auto& counts) { append_counts(out, counts); });
  return out;
}

RowBlockError unpacked_row_block(std::string_view text) {
  RowBlockError row_block;
  Reading reading(text);
  for_each_member(
      row_block, [&](double& value) { (void)reading.next(value); },
      [&](std::int64_t& value) { (void)reading.next(value, kBase); },
      [&](auto& counts) { reading.read_counts(counts); });
  return reading.good() ? row_block : RowBlockError{};
}

}  // namespace octavo
