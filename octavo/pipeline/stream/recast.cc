#include <cstring>

#include "octavo/convert/convert.h"
#include "octavo/convert/widen.h"
#include "octavo/format/named_formats.h"
#include "octavo/pipeline/stream/recast_internal.h"

namespace octavo {

bool needs_recast(safetensors::StoredType from, safetensors::StoredType to) {
  const auto a = safetensors::element_type(from), b = safetensors::element_type(to);
  return from != to && a && b && is_value(a->dtype) && is_value(b->dtype);
}

Tensor recast(std::span<const std::byte> bytes, safetensors::StoredType from,
              safetensors::StoredType to) {
  const DType source = safetensors::element_type(from)->dtype;
  const DType target = safetensors::element_type(to)->dtype;
  const auto count = static_cast<std::int64_t>(bytes.size()) / element_bytes(source);
  const Tensor stored = Tensor::values({count}, source);
  if (count > 0) std::memcpy(stored.bytes().data(), bytes.data(), bytes.size());
  const Tensor wide = widened(stored);
  if (target == DType::f32) return wide;
  Tensor out = Tensor::values({count}, target);
  const std::span<const float> values = wide.span<float>();
  encode(values, out.span<std::uint16_t>(), target == DType::f16 ? f16_format : bf16_format,
         {.overflow = Overflow::ieee}, {.threads = 1});
  return out;
}

}  // namespace octavo
