// Casts with a factor (encode_scaled, decode_scaled). Bytes count the values and the codes; of a
// dynamic factor one read of the values, which are read twice.
#include <vector>

#include "bench/cuda/lab.h"
#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"

namespace octavo::bench {
namespace {

constexpr double kBar = 0.9, kOtherBar = 0.6, kDynamicBar = 0.57;

// 0.3 is no f32; a factor for each row or column is.
enum class Given { three, three_tenths, rows, columns };
constexpr Given kAllGiven[] = {Given::three, Given::three_tenths, Given::rows, Given::columns};

const char* name_of(Given given) {
  switch (given) {
    case Given::three:
      return "3.0";
    case Given::three_tenths:
      return "0.3";
    case Given::rows:
      return "rows";
    default:
      return "columns";
  }
}

// f32 factors from 0.5 on, as a matrix of the shape of the values with one pitch of 0.
Matrix many_factors(Lab& lab, Given given, std::vector<Buffer>& keep) {
  const std::int64_t count = given == Given::rows ? lab.rows : lab.cols;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = 0.5F + 2.5F * static_cast<float>(i) / static_cast<float>(count);
  Matrix each = Lab::matrix(DType::f32, {}, false, 1, count, keep);
  must(
      cudaMemcpy(each.data, numbers.data(), numbers.size() * sizeof(float), cudaMemcpyHostToDevice),
      "factors");
  each.rows = lab.rows;
  each.cols = lab.cols;
  each.row_pitch = given == Given::rows ? static_cast<std::int64_t>(sizeof(float)) : 0;
  each.col_stride = given == Given::rows ? 0 : static_cast<std::int64_t>(sizeof(float));
  return each;
}

Factors factors_of(Lab& lab, Given given, bool divide, std::vector<Buffer>& keep) {
  Factors factors{.value = given == Given::three_tenths ? 0.3 : 3.0, .divide = divide};
  if (given == Given::rows || given == Given::columns)
    factors.each = many_factors(lab, given, keep);
  return factors;
}

std::function<Work(Lab&)> encoding(DType from, const Format& format, Given given) {
  return [=](Lab& lab) {
    Work work;
    const Matrix values = lab.values(from);
    const Matrix codes = Lab::matrix(DType::code, format, false, lab.rows, lab.cols, work.keep);
    const Factors factors = factors_of(lab, given, false, work.keep);
    const EncodePolicy policy{.nan_input = NanInput::zero};
    work.bytes = bytes_of(values) + bytes_of(codes);
    work.run = [=, entry = lab.entry(&Kernels::encode_scaled)](const Exec& exec) {
      entry(exec, values, codes, factors, policy, nullptr);
    };
    return work;
  };
}

std::function<Work(Lab&)> decoding(const Format& format, DType to, Given given, bool divide) {
  return [=](Lab& lab) {
    Work work;
    const Matrix codes = Lab::matrix(DType::code, format, false, lab.rows, lab.cols, work.keep);
    const Matrix values = Lab::matrix(to, {}, false, lab.rows, lab.cols, work.keep);
    lab.entry (&Kernels::encode)(lab.exec(), lab.values(DType::bf16), codes,
                                 {.nan_input = NanInput::zero}, nullptr);
    const Factors factors = factors_of(lab, given, divide, work.keep);
    work.bytes = bytes_of(values) + bytes_of(codes);
    work.run = [=, entry = lab.entry(&Kernels::decode_scaled)](const Exec& exec) {
      entry(exec, codes, values, factors);
    };
    return work;
  };
}

// As encode_dynamic does it: the amax of what is finite, then the factor and the codes.
std::function<Work(Lab&)> encoding_dynamic(DType from, const Format& format, DynamicRule rule) {
  return [=](Lab& lab) {
    Work work;
    QuantizeSource source;
    source.values = lab.values(from);
    const Matrix codes = Lab::matrix(DType::code, format, false, lab.rows, lab.cols, work.keep);
    float* const amax = lab.number(0, work.keep);
    work.keep.push_back(Lab::buffer(sizeof(double)));
    auto* const made = static_cast<double*>(work.keep.back()->data());
    const EncodePolicy policy{.nan_input = NanInput::zero};
    work.bytes = bytes_of(source.values) + bytes_of(codes);
    work.run = [=, find = lab.entry(&Kernels::amax),
                entry = lab.entry(&Kernels::encode_scaled)](const Exec& exec) {
      find(exec, source, AmaxOf::only_finite, amax);
      entry(exec, source.values, codes, {.amax = amax, .rule = rule, .made = made}, policy,
            nullptr);
    };
    return work;
  };
}

}  // namespace

std::vector<Case> scaled_cases() {
  std::vector<Case> all;
  for (const char* name : {"e4m3fn", "e5m2", "e3m4", "e0m7", "e4m4fnu", "e4m3fnuz"}) {
    const Format format = parse_format(name);
    const double bar = format == e4m3fn || format == e5m2 ? kBar : kOtherBar;
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      for (const Given given : kAllGiven) {
        all.push_back({"scaled", text(dtype_name(type), " -> ", name, " * ", name_of(given)), bar,
                       encoding(type, format, given)});
        all.push_back({"scaled", text(name, " -> ", dtype_name(type), " * ", name_of(given)), bar,
                       decoding(format, type, given, false)});
        all.push_back({"scaled", text(name, " -> ", dtype_name(type), " / ", name_of(given)), bar,
                       decoding(format, type, given, true)});
      }
      for (const DynamicRule rule : {DynamicRule::power_of_two, DynamicRule::value})
        all.push_back({"scaled",
                       text(dtype_name(type), " -> ", name,
                            rule == DynamicRule::value ? ", by value" : ", by power of two"),
                       kDynamicBar, encoding_dynamic(type, format, rule)});
    }
  }
  return all;
}

}  // namespace octavo::bench
