// octavo's own answers: quantize with OCP's rule, dequantize, gemm of one row by one.
#include <cstring>

#include "octavo/ops/gemm.h"
#include "octavo/quant/quantize.h"
#include "octavo/report/conform/conform.h"

namespace octavo {
namespace {

Scaling scaling_of(const Format& format) {
  Scaling scaling{.format = format, .tile = {1, kMxBlockSize}};
  scaling.scale = {.format = ScaleFormat::e8m0, .rule = ScaleRule::floor};
  scaling.packed = false;
  return scaling;
}

QuantizedTensor tensor_of(const Format& format, const std::vector<std::uint8_t>& scales,
                          const std::vector<std::uint8_t>& codes) {
  QuantizedTensor q =
      make_quantized({1, static_cast<std::int64_t>(codes.size())}, DType::f32, scaling_of(format));
  std::memcpy(q.rowwise.codes.bytes().data(), codes.data(), codes.size());
  std::memcpy(q.rowwise.scales.bytes().data(), scales.data(), scales.size());
  return q;
}

std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  std::vector<std::uint8_t> out(tensor.bytes().size());
  if (!out.empty()) std::memcpy(out.data(), tensor.bytes().data(), out.size());
  return out;
}

std::vector<float> floats_of(const Tensor& tensor) {
  const auto values = tensor.span<const float>();
  return {values.begin(), values.end()};
}

}  // namespace

ConformReply octavo_conforms(const ConformRequest& request) {
  ConformReply reply;
  if (request.format.bits() > 8 || request.other_format.bits() > 8) {  // a code is a byte
    reply.not_offered = "formats of more than eight bits";
    return reply;
  }
  if (request.kind == ConformKind::convert) {
    std::vector<float> values = request.values;
    const View view =
        value_view(values.data(), DType::f32, {1, static_cast<std::int64_t>(values.size())});
    const QuantizedTensor q = quantize(view, scaling_of(request.format), {.threads = 1});
    reply.scales = bytes_of(q.rowwise.scales);
    reply.codes = bytes_of(q.rowwise.codes);
    return reply;
  }
  const QuantizedTensor first = tensor_of(request.format, request.scales, request.codes);
  if (request.kind == ConformKind::dequantize) {
    reply.values = floats_of(dequantize(first, DType::f32, {.threads = 1}));
    return reply;
  }
  const QuantizedTensor second =
      tensor_of(request.other_format, request.other_scales, request.other_codes);
  reply.values = floats_of(gemm(first, second, {.threads = 1}));
  return reply;
}

}  // namespace octavo
