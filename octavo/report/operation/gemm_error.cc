#include "octavo/report/operation/gemm_error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <string_view>
#include <tuple>
#include <vector>

#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/base/thread_pool.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/ops/operand_rows_internal.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "gemm_error";

// f64 elements of each product in a row block, per thread.
constexpr std::int64_t kRowBlockElements = 64 * 1024;

struct DistanceSums {
  double error2 = 0, x2 = 0, y2 = 0, product = 0, max_abs = 0;

  void add(double x, double y) {
    error2 += (y - x) * (y - x);
    x2 += x * x;
    y2 += y * y;
    product += x * y;
    max_abs = std::max(max_abs, std::fabs(y - x));
  }
  void add(const DistanceSums& other) {
    error2 += other.error2;
    x2 += other.x2;
    y2 += other.y2;
    product += other.product;
    max_abs = std::max(max_abs, other.max_abs);
  }
  [[nodiscard]] ProductDistance distance() const {
    ProductDistance distance{.max_abs = max_abs};
    if (error2 > 0) distance.relative_l2 = std::sqrt(error2) / std::sqrt(x2);
    if (x2 > 0 || y2 > 0)
      distance.cosine =
          x2 > 0 && y2 > 0 ? std::clamp(product / std::sqrt(x2) / std::sqrt(y2), -1.0, 1.0) : 0.0;
    return distance;
  }
};

struct RowBlockSums {
  std::int64_t not_finite = 0;
  DistanceSums quantization, accumulation, total;
};

struct Products {
  View a, b, result;
  const Operand* a_used;
  const Operand* b_used;
};

void check_products(const Products& of) {
  for (const View* view : {&of.a, &of.b, &of.result}) {
    const std::string_view name = view == &of.a ? "A" : view == &of.b ? "B" : "the result";
    check_view(*view, kOp, name);
    check_on_cpu(*view, kOp, name);
    check(is_value(view->dtype), ErrorCode::wrong_type, kOp, name, " holds codes; expected values");
    if (view->shape.rank() != 2)
      fail(ErrorCode::invalid_argument, kOp, name, " has shape ", to_string(view->shape),
           "; expected two dimensions; measure the matrices of a batch one by one");
  }
  for (const auto& [values, used, name] :
       {std::tuple{&of.a, of.a_used, "A"}, std::tuple{&of.b, of.b_used, "B"}})
    if (values->shape != used->shape())
      fail(ErrorCode::invalid_argument, kOp, name, " has shape ", to_string(values->shape),
           " and what was multiplied in its place has ", to_string(used->shape()));
  const Shape shape = gemm_shape(of.a, of.b);
  (void)gemm_shape(*of.a_used, *of.b_used);  // for what it says of them
  if (of.result.shape != shape)
    fail(ErrorCode::invalid_argument, kOp, "the result has shape ", to_string(of.result.shape),
         "; expected ", to_string(shape));
}

// Rows of A per row block: whole tiles of the operands, a number that depends on the shape alone.
// Operands with one tile over all rows are one block.
std::int64_t rows_per_block(const Products& of) {
  const QuantizedTensor* quantized = of.a_used->quantized();
  const std::int64_t rows = of.a.shape[0],
                     tile = rows_of_a_tile(quantized ? &quantized->scaling : nullptr, rows);
  if (tile == 0) return rows;
  return std::max<std::int64_t>(1, kRowBlockElements / of.b.shape[0] / tile) * tile;
}

// Buffers of one thread.
struct RowBlock {
  Tensor original, used, result;

  RowBlock(std::int64_t rows, std::int64_t cols)
      : original(Tensor::values({rows, cols}, DType::f64)),
        used(Tensor::values({rows, cols}, DType::f64)),
        result(Tensor::values({rows, cols}, DType::f64)) {}
};

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

double value_at(const std::byte* from, DType dtype) {
  if (dtype == DType::f64) return load<double>(from);
  if (dtype == DType::f32) return static_cast<double>(load<float>(from));
  return decode(dtype == DType::f16 ? f16_format : bf16_format, load<std::uint16_t>(from));
}

// As f64, whatever its type and strides.
void widen(const View& from, const View& to) {
  const std::int64_t cols = from.shape[1];
  auto* out = static_cast<double*>(to.data);
  for (std::int64_t row = 0; row < from.shape[0]; ++row)
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::byte* at =
          static_cast<const std::byte*>(from.data) + row * from.strides[0] + col * from.strides[1];
      *out++ = value_at(at, from.dtype);
    }
}

RowBlockSums measured(const Products& of, std::int64_t first, std::int64_t count,
                      RowBlock& row_block) {
  const GemmOptions exact{.accumulator = Accumulator::f64, .threads = 1};
  const View original = rows_of(row_block.original.view(), 0, count),
             used = rows_of(row_block.used.view(), 0, count),
             result = rows_of(row_block.result.view(), 0, count);
  gemm_into(rows_of(of.a, first, count), of.b, original, exact);
  gemm_into(OperandRows(*of.a_used, first, count).operand(), *of.b_used, used, exact);
  widen(rows_of(of.result, first, count), result);
  RowBlockSums sums;
  const auto *x = static_cast<const double*>(original.data),
             *y = static_cast<const double*>(used.data),
             *z = static_cast<const double*>(result.data);
  for (std::int64_t i = 0; i < count * of.b.shape[0]; ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i]) || !std::isfinite(z[i])) {
      ++sums.not_finite;
      continue;
    }
    sums.quantization.add(x[i], y[i]);
    sums.accumulation.add(y[i], z[i]);
    sums.total.add(x[i], z[i]);
  }
  return sums;
}

}  // namespace

GemmError measure_gemm_error(const View& a, const View& b, const Operand& a_used,
                             const Operand& b_used, const View& result,
                             const GemmErrorOptions& options) {
  const FpEnvGuard guard;
  const Products of{a, b, result, &a_used, &b_used};
  check_products(of);
  GemmError error{.elements = element_count(result.shape)};
  if (error.elements == 0) return error;
  const std::int64_t rows = a.shape[0], row_block = std::min(rows, rows_per_block(of));
  const std::int64_t row_blocks = (rows + row_block - 1) / row_block;
  const Exec exec = make_exec(error.elements * std::max<std::int64_t>(a.shape[1] / 64, 1),
                              options.threads, nullptr, kOp);
  const auto at_once = static_cast<int>(std::min<std::int64_t>(exec.threads, row_blocks));
  std::vector<RowBlock> memory;
  for (int i = 0; i < at_once; ++i) memory.emplace_back(row_block, b.shape[0]);
  std::vector<RowBlockSums> sums(static_cast<std::size_t>(at_once));
  std::vector<std::exception_ptr> thrown(sums.size());
  RowBlockSums all;
  // Added in the order of the rows, so that threads make no difference.
  for (std::int64_t from = 0; from < row_blocks; from += at_once) {
    const auto parts = static_cast<int>(std::min<std::int64_t>(at_once, row_blocks - from));
    parallel_for(parts, at_once, [&](int part) {
      const auto i = static_cast<std::size_t>(part);
      const std::int64_t first = (from + part) * row_block;
      try {
        sums[i] = measured(of, first, std::min(row_block, rows - first), memory[i]);
      } catch (...) {  // an error must not leave a thread of the pool
        thrown[i] = std::current_exception();
      }
    });
    for (int part = 0; part < parts; ++part) {
      const auto i = static_cast<std::size_t>(part);
      if (thrown[i]) std::rethrow_exception(thrown[i]);
      all.not_finite += sums[i].not_finite;
      all.quantization.add(sums[i].quantization);
      all.accumulation.add(sums[i].accumulation);
      all.total.add(sums[i].total);
    }
  }
  error.not_finite = all.not_finite;
  error.quantization = all.quantization.distance();
  error.accumulation = all.accumulation.distance();
  error.total = all.total.distance();
  return error;
}

}  // namespace octavo
