// measure_error() of two arrays of values.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/decode.h"
#include "octavo/report/metrics.h"
#include "octavo/report/piece_internal.h"
#include "octavo/report/value_error.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "error";
constexpr std::int64_t kAtOnce = 16 * 1024;

template <typename T>
T loaded(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double element_at(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f64:
      return loaded<double>(at);
    case DType::f32:
      return static_cast<double>(loaded<float>(at));
    case DType::f16:
      return decode(f16_format, loaded<std::uint16_t>(at));
    default:
      return decode(bf16_format, loaded<std::uint16_t>(at));
  }
}

// The elements of a view in the order of its dimensions, a piece at a time.
class Elements {
 public:
  explicit Elements(const View& view)
      : view_(view), at_(static_cast<const std::byte*>(view.data)) {}

  // The next n of them.
  void read(std::int64_t n, WideValues& into) {
    into.value.clear();
    into.rest.assign(static_cast<std::size_t>(n), 0.0);
    for (std::int64_t i = 0; i < n; ++i) {
      into.value.push_back(element_at(view_.dtype, at_));
      step();
    }
  }

 private:
  void step() {
    for (int d = view_.shape.rank() - 1; d >= 0; --d) {
      at_ += view_.strides[d];
      if (++index_[d] < view_.shape[d]) return;
      at_ -= view_.strides[d] * view_.shape[d];
      index_[d] = 0;
    }
  }

  const View& view_;
  const std::byte* at_;
  std::int64_t index_[kMaxRank] = {};
};

void check_values(const View& view, std::string_view name) {
  check(is_value(view.dtype), ErrorCode::wrong_type, kOp, name,
        " holds codes; expected values; decode or dequantize it first");
  check(view.device.kind == DeviceKind::cpu, ErrorCode::invalid_argument, kOp, name,
        " is on a device; expected memory of the host; copy it there");
}

// Calls visit(x, y) for pieces of both, in order.
template <typename Visit>
void each_piece(const View& values, const View& result, const Visit& visit) {
  const std::int64_t count = element_count(values.shape);
  Elements before(values), after(result);
  WideValues x, y;
  for (std::int64_t done = 0; done < count; done += kAtOnce) {
    const std::int64_t n = std::min(kAtOnce, count - done);
    before.read(n, x);
    after.read(n, y);
    visit(x, y);
  }
}

// The largest finite magnitude of the two; only f64 can have one whose square is none.
double largest_of(const View& values, const View& result) {
  if (values.dtype != DType::f64 && result.dtype != DType::f64) return 1;
  double most = 0;
  each_piece(values, result, [&](const WideValues& x, const WideValues& y) {
    for (const WideValues* of : {&x, &y})
      for (const double value : of->value)
        if (std::isfinite(value)) most = std::max(most, std::abs(value));
  });
  return most;
}

ErrorMetrics measured(const View& values, const View& result, double unit) {
  TensorError error;
  std::size_t ordinal = 0;
  each_piece(values, result, [&](const WideValues& x, const WideValues& y) {
    const auto n = static_cast<std::int64_t>(y.value.size());
    error.add(ordinal++, measure_values(x, y, n * element_bytes(result.dtype), unit));
  });
  ErrorMetrics out = error.metrics();
  out.sums.unit = unit;
  out.mse = out.sums.mse();
  return out;
}

}  // namespace

ErrorMetrics measure_error(const View& values, const View& result) {
  check_values(values, "the first array");
  check_values(result, "the second array");
  check(values.shape == result.shape, ErrorCode::invalid_argument, kOp, "got arrays of shapes ",
        to_string(values.shape), " and ", to_string(result.shape), "; expected the same");
  const FpEnvGuard guard;  // sums and ratios must not depend on the caller's rounding
  ErrorMetrics out = measured(values, result, 1);
  const double unit = unit_of(largest_of(values, result));
  if (unit != 1) out = measured(values, result, unit);  // f64 only, and seldom
  out.values = {};
  return out;
}

}  // namespace octavo
