#include "cli/self_check.h"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "cli/text/formatted.h"
#include "octavo/backend/registry.h"
#include "octavo/convert/convert.h"
#include "octavo/format/named_formats.h"

namespace octavo::cli {
namespace {

std::string check_encode(const Kernels& backend, const NamedFormat& named,
                         std::vector<std::uint16_t>& inputs) {
  const EncodePolicy policy{.nan_input = NanInput::zero};
  const View values = value_view(inputs.data(), DType::bf16, {kSelfCheckInputs});
  const Tensor got = encode(values, named.format, policy, {.threads = 1, .backend = &backend});
  const Tensor wanted =
      encode(values, named.format, policy, {.threads = 1, .backend = &reference_backend()});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (got.bytes()[i] != wanted.bytes()[i]) {
      return formatted("bfloat16 0x{:04x} to {} gives 0x{:02x}; expected 0x{:02x}", inputs[i],
                       named.name, std::to_integer<int>(got.bytes()[i]),
                       std::to_integer<int>(wanted.bytes()[i]));
    }
  }
  return "";
}

std::string check_decode(const Kernels& backend, const NamedFormat& named) {
  std::vector<std::uint8_t> codes(named.format.code_mask() + 1);
  std::iota(codes.begin(), codes.end(), std::uint8_t{0});
  const View view = view_of(std::span(codes), named.format);
  const Tensor got = decode(view, DType::f32, {.threads = 1, .backend = &backend});
  const Tensor wanted = decode(view, DType::f32, {.threads = 1, .backend = &reference_backend()});
  if (std::memcmp(got.bytes().data(), wanted.bytes().data(), got.bytes().size()) == 0) return "";
  return formatted("decoding {} differs", named.name);
}

}  // namespace

std::string self_check(const Kernels& backend) {
  std::vector<std::uint16_t> inputs(kSelfCheckInputs);
  std::iota(inputs.begin(), inputs.end(), std::uint16_t{0});
  for (const NamedFormat& named : kNamedFormats) {
    if (std::string problem = check_encode(backend, named, inputs); !problem.empty())
      return problem;
    if (std::string problem = check_decode(backend, named); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace octavo::cli
