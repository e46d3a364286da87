// Norms and activations: rows split among threads, processed in pieces that are staged as f64 on
// the stack. All arithmetic is in f64, so that only the order of sums and the last tenth of a digit
// of exp differ from the reference: the resulting f32 is one of the two around the exact value.
#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/narrow.h"
#include "octavo/backend/cpu/produce/activation_spans.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

// Values of any type and strides as f64.
class Reader {
 public:
  Reader(const Isa& isa, const Matrix& values)
      : values_(values),
        f16_{.format = f16_format, .target = DType::f64},
        decode_f16_(isa.decode(f16_)) {}

  // At most kStage of them; `stage` has as many.
  const double* operator()(std::int64_t row, std::int64_t col, std::int64_t n,
                           double* stage) const {
    alignas(64) std::byte gathered[kStage * 8];
    const void* from = gather(values_, row, col, n, gathered);
    if (values_.dtype == DType::f64) {
      if (from != gathered) return static_cast<const double*>(from);
      std::copy_n(static_cast<const double*>(from), n, stage);
    } else if (values_.dtype == DType::f32) {
      const auto* x = static_cast<const float*>(from);
      for (std::int64_t i = 0; i < n; ++i) stage[i] = static_cast<double>(x[i]);
    } else if (values_.dtype == DType::bf16) {
      const auto* x = static_cast<const std::uint16_t*>(from);
      for (std::int64_t i = 0; i < n; ++i)
        stage[i] = static_cast<double>(std::bit_cast<float>(std::uint32_t{x[i]} << 16));
    } else {
      decode_f16_(f16_, from, stage, n);
    }
    return stage;
  }

 private:
  Matrix values_;
  Decoder f16_;
  DecodeSpan decode_f16_;
};

// Stores f32 to the output matrix.
class Writer {
 public:
  Writer(const Isa& isa, const Matrix& out)
      : out_(out),
        direct_(out.dtype == DType::f32 && is_contiguous(out)),
        narrow_(isa, out.dtype) {}

  // Where a piece is assembled: the output itself, or else `stage`.
  float* place(std::int64_t row, std::int64_t col, float* stage) const {
    return direct_ ? reinterpret_cast<float*>(element(out_, row, col)) : stage;
  }
  void finish(std::int64_t row, std::int64_t col, std::int64_t n, const float* stage) const {
    if (direct_) return;
    if (out_.dtype == DType::f32)
      return scatter(out_, row, col, n, reinterpret_cast<const std::byte*>(stage));
    alignas(64) std::byte narrowed[kStage * 2];
    narrow_(stage, narrowed, n);
    scatter(out_, row, col, n, narrowed);
  }

 private:
  Matrix out_;
  bool direct_;
  Narrower narrow_;
};

// std::sqrt without the branch to where it sets errno.
double root_of(double square) {
#if defined(__SSE2__)
  return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(square)));
#elif defined(__aarch64__)
  return vget_lane_f64(vsqrt_f64(vdup_n_f64(square)), 0);
#else
  return std::sqrt(square);
#endif
}

// A sum in several independent lanes: a single accumulator would be one dependency chain.
class LaneSum {
 public:
  template <typename Term>
  void add(const double* x, std::int64_t n, Term&& term) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes_[lane] += term(x[i + lane]);
    for (; i < n; ++i) lanes_[0] += term(x[i]);
  }
  [[nodiscard]] double total() const {
    double sum = 0.0;
    for (const double lane : lanes_) sum += lane;
    return sum;
  }

 private:
  static constexpr std::int64_t kLanes = 8;
  double lanes_[kLanes] = {};
};

template <typename Visit>
void for_each_piece(std::int64_t cols, Visit&& visit) {
  for (std::int64_t col = 0; col < cols; col += kStage) visit(col, std::min(kStage, cols - col));
}

void norm_rows(const Isa& isa, const Exec& exec, const Matrix& x, const Producer& producer,
               const Matrix& out) {
  const Reader read(isa, x), read_weight(isa, producer.weight), read_bias(isa, producer.bias);
  const Writer write(isa, out);
  const bool weighted = producer.weight.data != nullptr, biased = producer.bias.data != nullptr;
  const double from_one = producer.zero_centred ? 1.0 : 0.0;
  const auto count = static_cast<double>(std::max<std::int64_t>(x.cols, 1));
  parallel_units(x.rows, useful_threads(exec, x.rows * x.cols), [&](std::int64_t row) {
    alignas(64) double values[kStage], weights[kStage], biases[kStage];
    alignas(64) float stage[kStage];
    double mean = 0.0;
    if (producer.kind == ProducerKind::layer_norm) {
      LaneSum sum;
      for_each_piece(x.cols, [&](std::int64_t col, std::int64_t n) {
        sum.add(read(row, col, n, values), n, [](double value) { return value; });
      });
      mean = sum.total() / count;
    }
    LaneSum squares;
    for_each_piece(x.cols, [&](std::int64_t col, std::int64_t n) {
      squares.add(read(row, col, n, values), n,
                  [mean](double value) { return (value - mean) * (value - mean); });
    });
    const double inv_std = 1.0 / root_of(squares.total() / count + producer.epsilon);
    if (producer.mean != nullptr) producer.mean[row] = static_cast<float>(mean);
    if (producer.inv_std != nullptr) producer.inv_std[row] = static_cast<float>(inv_std);
    for_each_piece(x.cols, [&](std::int64_t col, std::int64_t n) {
      const double* in = read(row, col, n, values);
      float* to = write.place(row, col, stage);
      const double* weight = weighted ? read_weight(0, col, n, weights) : nullptr;
      const double* bias = biased ? read_bias(0, col, n, biases) : nullptr;
      const auto normal = [&](std::int64_t i) { return (in[i] - mean) * inv_std; };
      if (weight != nullptr && bias != nullptr) {
        for (std::int64_t i = 0; i < n; ++i)
          to[i] = static_cast<float>(normal(i) * (from_one + weight[i]) + bias[i]);
      } else if (weight != nullptr) {
        for (std::int64_t i = 0; i < n; ++i)
          to[i] = static_cast<float>(normal(i) * (from_one + weight[i]));
      } else if (bias != nullptr) {
        for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(normal(i) + bias[i]);
      } else {
        for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(normal(i));
      }
      write.finish(row, col, n, stage);
    });
  });
}

void activate_rows(const Isa& isa, const Exec& exec, const Matrix& x, const Producer& producer,
                   const Matrix& out) {
  const Reader read(isa, x);
  const Writer write(isa, out);
  const ActivateSpan activate = isa.activate != nullptr ? isa.activate : activate_span;
  const std::int64_t per_row = (out.cols + kStage - 1) / kStage;
  parallel_units(
      out.rows * per_row, useful_threads(exec, out.rows * out.cols), [&](std::int64_t unit) {
        alignas(64) double values[kStage], gates[kStage];
        alignas(64) float stage[kStage];
        const std::int64_t row = unit / per_row, col = unit % per_row * kStage;
        const std::int64_t n = std::min(kStage, out.cols - col);
        const double* in = read(row, col, n, values);
        const double* gate = producer.gated ? read(row, out.cols + col, n, gates) : nullptr;
        activate(producer.kind, in, gate, write.place(row, col, stage), n);
        write.finish(row, col, n, stage);
      });
}

}  // namespace

void produce_matrix(const Isa& isa, const Exec& exec, const Matrix& x, const Producer& producer,
                    const Matrix& out) {
  if (producer.is_norm()) return norm_rows(isa, exec, x, producer, out);
  activate_rows(isa, exec, x, producer, out);
}

}  // namespace octavo::cpu
