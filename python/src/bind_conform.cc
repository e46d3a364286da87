// OCP MX 1.0 of a callable, clause by clause.
#include <nanobind/stl/string.h>

#include <cstring>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"
#include "octavo/report/conform/conform.h"

namespace octavo::python {
namespace {

template <typename T>
nb::bytes bytes_of(const std::vector<T>& numbers) {
  return nb::bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
}

template <typename T>
std::vector<T> numbers_of(nb::handle object) {
  const auto bytes = nb::cast<nb::bytes>(object);
  check(bytes.size() % sizeof(T) == 0, ErrorCode::invalid_argument, "conform", "got ", bytes.size(),
        " bytes; expected whole numbers of ", sizeof(T));
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.c_str(), bytes.size());
  return out;
}

// answer(kind, format, values, scales, codes, other format, other scales, other codes) gives a str
// (not offered, and why), the bytes of values, or a tuple of the bytes of scales and codes.
ConformReply asked(const nb::callable& answer, const ConformRequest& request) {
  constexpr std::string_view kKinds[] = {"convert", "dequantize", "dot"};
  const bool dot = request.kind == ConformKind::dot;
  const nb::object given =
      answer(std::string(kKinds[static_cast<std::size_t>(request.kind)]),
             format_name(request.format), bytes_of(request.values), bytes_of(request.scales),
             bytes_of(request.codes), dot ? format_name(request.other_format) : std::string(),
             bytes_of(request.other_scales), bytes_of(request.other_codes));
  ConformReply reply;
  if (nb::isinstance<nb::str>(given)) {
    reply.not_offered = nb::cast<std::string>(given);
  } else if (request.kind == ConformKind::convert) {
    const auto both = nb::cast<nb::tuple>(given);
    reply.scales = numbers_of<std::uint8_t>(both[0]);
    reply.codes = numbers_of<std::uint8_t>(both[1]);
  } else {
    reply.values = numbers_of<float>(given);
  }
  return reply;
}

}  // namespace

void bind_conform(nb::module_& module) {
  nb::class_<ConformReport>(module, "ConformReport")
      .def("json", [](const ConformReport& report) { return json_of(report); })
      .def("text", [](const ConformReport& report) { return text_of(report); });
  module.def(
      "conform",
      [](const nb::callable& answer) {
        return conform([&](const ConformRequest& request) { return asked(answer, request); });
      },
      nb::arg("answer"));
  module.def("octavo_conforms", [] { return conform(octavo_conforms); });
}

}  // namespace octavo::python
