// The driver of scaled conversions: values times factors to codes, codes times (or divided by)
// factors to values, each element rounded once. A piece at a time that stays in L1: widened,
// multiplied or divided to odd (ProductSpans), and converted by the span kernels of plain casts.
// That is done in f32 where factors are f32 and no rest can be lost, else in f64. No branch or
// address depends on an element.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "octavo/backend/cpu/convert/count.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/format/decode.h"
#include "octavo/round/product.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kPiece = 1024;  // elements; a multiple of 8 for packing
constexpr std::int64_t kRun = 16 * kPiece;

bool is_f32(double factor) {
  return static_cast<double>(static_cast<float>(factor)) == factor;  // not NaN, which is never sent
}

// More bits than f32 has.
bool is_long(double factor) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &factor, sizeof bits);
  return (bits & ((std::uint64_t{1} << 29) - 1)) != 0;
}

// The one factor of a call, where there is no array.
double one_factor(const Factors& factors, const Format& format) {
  if (factors.amax == nullptr) return factors.value;
  const double made = dynamic_factor(*factors.amax, max_value(format), factors.rule);
  if (factors.made != nullptr) *factors.made = made;
  return made;
}

double number_at(const Matrix& numbers, std::int64_t row, std::int64_t col) {
  const std::byte* from = element(numbers, row, col);
  if (numbers.dtype == DType::f64) {
    double value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  float value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Numbers at equal distances to contiguous ones of another type.
template <typename From, typename To>
void copy_numbers(const std::byte* from, std::int64_t stride, To* to, std::int64_t n) {
  if (stride == sizeof(From)) {
    for (std::int64_t i = 0; i < n; ++i) {
      From value;
      std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(From)), sizeof value);
      to[i] = static_cast<To>(value);
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    From value;
    std::memcpy(&value, from + i * stride, sizeof value);
    to[i] = static_cast<To>(value);
  }
}

// Factors of a piece as contiguous f32 or f64: filled once where they do not change along a row.
class FactorPiece {
 public:
  FactorPiece(const Factors& factors, double one, bool in_f32)
      : factors_(factors), one_(one), in_f32_(in_f32) {}

  void load(std::int64_t row, std::int64_t col, std::int64_t n) {
    const Matrix& each = factors_.each;
    if (!factors_.is_array()) return fill_once(0, [&] { return one_; });
    if (each.col_stride == 0) return fill_once(row, [&] { return number_at(each, row, 0); });
    const std::byte* from = element(each, row, col);
    if (in_f32_)  // of f32
      copy_numbers<float>(from, each.col_stride, narrow_.data(), n);
    else if (each.dtype == DType::f32)
      copy_numbers<float>(from, each.col_stride, wide_.data(), n);
    else
      copy_numbers<double>(from, each.col_stride, wide_.data(), n);
  }
  [[nodiscard]] const float* f32() const { return narrow_.data(); }
  [[nodiscard]] const double* f64() const { return wide_.data(); }

 private:
  template <typename Number>
  void fill_once(std::int64_t row, Number&& number) {
    if (row == filled_) return;
    const double factor = number();
    if (in_f32_)
      narrow_.fill(static_cast<float>(factor));
    else
      wide_.fill(factor);
    filled_ = row;
  }

  const Factors& factors_;
  double one_;
  bool in_f32_;
  std::int64_t filled_ = -1;
  alignas(64) std::array<float, kPiece> narrow_;
  alignas(64) std::array<double, kPiece> wide_;
};

// Calls visit(row, col, n) for pieces that cover the matrix; `start` makes what a thread keeps.
template <typename Start, typename Visit>
void for_each_piece(const Exec& exec, std::int64_t rows, std::int64_t cols, Start&& start,
                    Visit&& visit) {
  if (rows == 0 || cols == 0) return;
  const std::int64_t per_row = (cols + kRun - 1) / kRun, units = rows * per_row;
  const int threads = useful_threads(exec, rows * cols);
  parallel_parts(units, parts_for(units, threads), threads,
                 [&](int, std::int64_t first, std::int64_t last) {
                   auto kept = start();
                   for (std::int64_t unit = first; unit < last; ++unit) {
                     const std::int64_t row = unit / per_row, from = unit % per_row * kRun;
                     const std::int64_t end = std::min(cols, from + kRun);
                     for (std::int64_t col = from; col < end; col += kPiece)
                       visit(kept, row, col, std::min(kPiece, end - col));
                   }
                 });
}

// Half a step of the format as a power of two: smaller products round as nothing does.
int half_step(const Format& format) { return format.min_step_exponent() - 1; }

int top_exponent(const Format& format) {
  return static_cast<int>((format.max_field() + 1) >> format.mantissa_bits) + format.min_exponent();
}

enum class Width : std::uint8_t {
  f32,      // products in f32
  f64_f32,  // products in f64, to odd in f32
  f64,      // in f64
};

// How products are made for an encode. Directed roundings and counts tell tiny products from zero,
// and stochastic rounding has draws of 16 bits below a step.
Width encode_width(const Format& format, const EncodePolicy& policy, DType source, bool f32_factors,
                   bool counts) {
  const bool fits = fits_f32(format) && top_exponent(format) <= 127 &&
                    policy.rounding != Rounding::stochastic && !policy.via_f32;
  if (!fits || half_step(format) <= -126) return Width::f64;
  const bool nearest =
      policy.rounding == Rounding::nearest_even || policy.rounding == Rounding::nearest_away;
  const bool in_f32 = f32_factors && source != DType::f64 && nearest && !counts &&
                      half_step(format) >= kTinyF32Rest;
  return in_f32 ? Width::f32 : Width::f64_f32;
}

// For formats with steps so small that the spans in f64 would take products for tiny ones.
bool needs_integers(const Format& format) { return half_step(format) <= kTinyProduct + 20; }

void multiply_integers(DType source, const void* values, const double* factors, double* out,
                       std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    double value = 0;
    const auto* from = static_cast<const std::byte*>(values) + i * element_bytes(source);
    if (source == DType::f64) {
      std::memcpy(&value, from, sizeof value);
    } else {
      float narrow = 0;  // bf16: the upper half
      std::memcpy(reinterpret_cast<std::byte*>(&narrow) + (source == DType::bf16 ? 2 : 0), from,
                  static_cast<std::size_t>(element_bytes(source)));
      value = narrow;
    }
    out[i] = product_to_odd(value, factors[i]);
  }
}

}  // namespace

void encode_scaled_matrix(const Isa& isa, const Exec& exec, const Matrix& values,
                          const Matrix& codes, const Factors& factors, const EncodePolicy& policy,
                          Counts* counts) {
  const double one = one_factor(factors, codes.format);
  const bool f32_factors = factors.is_array() ? factors.each.dtype == DType::f32 : is_f32(one);
  // What is multiplied: f32 and bf16 as they are; f16 and codes decoded.
  const bool decodes = values.dtype == DType::code || values.dtype == DType::f16;
  const Format from_format = values.dtype == DType::f16 ? f16_format : values.format;
  const DType source = !decodes ? values.dtype : fits_f32(from_format) ? DType::f32 : DType::f64;
  const Width width = encode_width(codes.format, policy, source, f32_factors, counts != nullptr);
  EncodePolicy span_policy = policy;
  span_policy.via_f32 = policy.via_f32 && width == Width::f64;
  const DType product_type = width == Width::f64 ? DType::f64 : DType::f32;
  const Encoder encoder = make_encoder(codes.format, span_policy, product_type);
  const EncodeSpan encode_span = isa.encode(encoder);
  const Decoder decoder{.format = from_format, .target = source};
  const DecodeSpan decode_span = decodes ? isa.decode(decoder) : nullptr;
  const ProductSpans& products = *isa.products;
  const bool is_one_long = !factors.is_array() && is_long(one);
  const bool direct = is_contiguous(codes), in_integers = needs_integers(codes.format);
  AtomicCounts totals;

  const auto multiply = [&](const FactorPiece& piece, const void* from, float* narrow, double* wide,
                            std::int64_t n) {
    if (is_one_long && width == Width::f64_f32 && source != DType::f64)
      return source == DType::bf16 ? products.bf16_long_odd(from, one, narrow, n)
                                   : products.f32_long_odd(from, one, narrow, n);
    if (width == Width::f32)
      return source == DType::bf16 ? products.bf16_odd(from, piece.f32(), narrow, n)
                                   : products.f32_odd(from, piece.f32(), narrow, n);
    if (in_integers) return multiply_integers(source, from, piece.f64(), wide, n);
    if (source == DType::bf16)
      products.bf16_f64_odd(from, piece.f64(), wide, n);
    else if (source == DType::f32)
      products.f32_f64_odd(from, piece.f64(), wide, n);
    else
      products.f64_odd(from, piece.f64(), wide, n);
    if (width == Width::f64_f32) products.narrow_odd(wide, narrow, n);
  };
  const auto visit = [&](FactorPiece& piece, std::int64_t row, std::int64_t col, std::int64_t n) {
    alignas(64) std::byte gathered[kPiece * 8], decoded[kPiece * 8], encoded[kPiece * 2];
    alignas(64) float narrow[kPiece];
    alignas(64) double wide[kPiece];
    const std::uint64_t index =
        policy.first_index + static_cast<std::uint64_t>(row * values.cols + col);
    piece.load(row, col, n);
    const void* from = gather(values, row, col, n, gathered);
    if (decodes) {
      decode_span(decoder, from, decoded, n);
      from = decoded;
    }
    multiply(piece, from, narrow, wide, n);
    const void* made = product_type == DType::f64 ? static_cast<const void*>(wide) : narrow;
    encode_span(encoder, made, direct ? element(codes, row, col) : encoded, n, index);
    if (counts != nullptr) totals.add(isa.count(encoder, made, n, index));
    if (!direct) scatter(codes, row, col, n, encoded);
  };
  for_each_piece(
      exec, values.rows, values.cols,
      [&] { return FactorPiece(factors, one, width == Width::f32); }, visit);
  if (counts != nullptr) *counts += totals.get();
}

namespace {

// The least and the most of a call's factors.
struct FactorRange {
  double least, most;
};

FactorRange range_of(const Factors& factors, double one) {
  if (!factors.is_array()) return {one, one};
  const Matrix& each = factors.each;
  FactorRange range{number_at(each, 0, 0), number_at(each, 0, 0)};
  const std::int64_t rows = each.row_pitch == 0 ? 1 : each.rows,
                     cols = each.col_stride == 0 ? 1 : each.cols;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const double factor = number_at(each, row, col);
      range.least = std::min(range.least, factor);
      range.most = std::max(range.most, factor);
    }
  }
  return range;
}

// How a decode makes what it stores.
enum class Way : std::uint8_t {
  f32,         // products or quotients in f32, rounded to it
  f32_odd,     // to odd in f32, then to 16 bits
  long_odd,    // products with one factor of more bits than f32 has, to odd in f32, then to 16 bits
  f64_odd,     // products or quotients in f64, to odd in f32, then to 16 bits
  f64_narrow,  // in f64, then to f32
  f64,         // in f64, which is the target or is encoded
};

// A quotient of codes of at most 16 bits and an f32 is never as near to a number or midpoint of f32
// (25 bits) as f64 rounds, unless it is one: dividing in f32 gives the bits of dividing in f64 and
// rounding that to f32, among subnormals, too.
Way decode_way(const Format& format, DType target, const Factors& factors, double one,
               const FactorRange& range) {
  const bool f32_factors = factors.is_array() ? factors.each.dtype == DType::f32 : is_f32(one);
  const bool in_f32 = f32_factors && fits_f32(format);
  if (target == DType::f64) return Way::f64;
  if (target == DType::f32) return in_f32 ? Way::f32 : Way::f64_narrow;
  // Rests of products and quotients of what is below 2^-100 are lost in f32; and f32 to odd holds
  // what a 16-bit type needs, but among the subnormals of bf16, which are those of f32.
  const double smallest =
      factors.divide ? min_positive(format) / range.most : min_positive(format) * range.least;
  const bool has_rests = !factors.divide || format.min_step_exponent() >= kTinyF32Rest;
  if (in_f32 && smallest >= 0x1p-90 && has_rests) return Way::f32_odd;
  if (target == DType::bf16 && smallest < 0x1p-120) return Way::f64;
  const bool is_long_one = !factors.is_array() && !factors.divide && is_long(one);
  return is_long_one && fits_f32(format) ? Way::long_odd : Way::f64_odd;
}

// Is there one factor for all or for each row, within the range of ProductSpans::divide_by_one?
bool has_one_in_range(const Factors& factors, const Format& format, const FactorRange& range) {
  const double far = std::ldexp(1.0, kQuotientRange);
  return (!factors.is_array() || factors.each.col_stride == 0) && min_positive(format) * far >= 1 &&
         max_value(format) <= far && range.least * far >= 1 && range.most <= far;
}

}  // namespace

void decode_scaled_matrix(const Isa& isa, const Exec& exec, const Matrix& codes,
                          const Matrix& values, const Factors& factors) {
  if (codes.rows == 0 || codes.cols == 0) return;
  const double one = one_factor(factors, codes.format);
  const DType target = values.dtype;
  const FactorRange range = range_of(factors, one);
  const Way way = decode_way(codes.format, target, factors, one, range);
  const bool by_one = has_one_in_range(factors, codes.format, range),
             in_f32 = way == Way::f32 || way == Way::f32_odd,
             by_f32 = in_f32 || way == Way::long_odd || way == Way::f64_odd;
  // One pass over f32, which is in f64 in registers alone.
  const bool fused = by_one && fits_f32(codes.format) &&
                     (way == Way::f64_narrow || (way == Way::f64_odd && factors.divide));
  const bool decodes_f32 = in_f32 || way == Way::long_odd || fused;
  const Encoder encoder =
      make_encoder(target == DType::f16 ? f16_format : bf16_format,
                   {.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet},
                   by_f32 ? DType::f32 : DType::f64);
  const EncodeSpan encode_span = isa.encode(encoder);
  const bool narrows = target == DType::bf16 && by_f32 && isa.narrow_bf16 != nullptr;
  const Decoder decoder{.format = codes.format, .target = decodes_f32 ? DType::f32 : DType::f64};
  const DecodeSpan decode_span = isa.decode(decoder);
  const ProductSpans& products = *isa.products;
  const bool direct = is_contiguous(values);

  const auto multiply = [&](const FactorPiece& piece, const std::byte* decoded, void* to,
                            float* narrow, double* wide, std::int64_t n) {
    const auto* f32 = reinterpret_cast<const float*>(decoded);
    const auto* f64 = reinterpret_cast<const double*>(decoded);
    if (way == Way::f32)
      return (factors.divide ? products.divide_f32 : products.f32)(f32, piece.f32(),
                                                                   static_cast<float*>(to), n);
    if (way == Way::f32_odd)
      return factors.divide ? products.divide_f32_odd(f32, piece.f32(), narrow, n)
                            : products.f32_odd(f32, piece.f32(), narrow, n);
    if (way == Way::long_odd) return products.f32_long_odd(f32, one, narrow, n);
    const double factor = piece.f64()[0];
    if (fused && way == Way::f64_odd) return products.quotients_odd(f32, factor, narrow, n);
    if (fused)
      return (factors.divide ? products.quotients : products.long_products)(
          f32, factor, static_cast<float*>(to), n);
    double* product = target == DType::f64 ? static_cast<double*>(to) : wide;
    if (factors.divide && by_one)
      products.divide_by_one(f64, factor, product, n);
    else if (factors.divide)
      products.divide(f64, piece.f64(), product, n);
    else if (target == DType::f64)
      products.f64(f64, piece.f64(), product, n);
    else
      products.f64_odd(f64, piece.f64(), product, n);
    if (way == Way::f64_narrow) products.narrow(wide, static_cast<float*>(to), n);
    if (way == Way::f64_odd) products.narrow_odd(wide, narrow, n);
  };
  const auto visit = [&](FactorPiece& piece, std::int64_t row, std::int64_t col, std::int64_t n) {
    alignas(64) std::byte gathered[kPiece * 2], decoded[kPiece * 8], staged[kPiece * 8];
    alignas(64) float narrow[kPiece];
    alignas(64) double wide[kPiece];
    piece.load(row, col, n);
    decode_span(decoder, gather(codes, row, col, n, gathered), decoded, n);
    void* to = direct ? static_cast<void*>(element(values, row, col)) : staged;
    multiply(piece, decoded, to, narrow, wide, n);
    if (narrows) {
      isa.narrow_bf16(narrow, static_cast<std::uint16_t*>(to), n);
    } else if (target == DType::bf16 || target == DType::f16) {
      encode_span(encoder, by_f32 ? static_cast<const void*>(narrow) : wide, to, n, 0);
    }
    if (!direct) scatter(values, row, col, n, staged);
  };
  for_each_piece(
      exec, codes.rows, codes.cols, [&] { return FactorPiece(factors, one, in_f32); }, visit);
}

}  // namespace octavo::cpu
