#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bind.h"
#include "octavo/format/decode.h"
#include "octavo/format/parse_format.h"

namespace octavo::python {
namespace {

template <typename T>
using NumpyVector = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <typename T, typename Function>
NumpyVector<T> table(const Format& format, Function&& entry) {
  const std::size_t count = std::size_t{format.code_mask()} + 1;
  auto data = std::make_unique<T[]>(count);
  for (std::size_t code = 0; code < count; ++code)
    data[code] = entry(static_cast<std::uint32_t>(code));
  T* const address = data.get();
  nb::capsule owner(data.release(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return {address, {count}, owner};
}

std::variant<NumpyVector<std::uint8_t>, NumpyVector<std::uint16_t>> codes(const Format& format) {
  if (format.code_bytes() == 1) {
    return table<std::uint8_t>(format,
                               [](std::uint32_t code) { return static_cast<std::uint8_t>(code); });
  }
  return table<std::uint16_t>(format,
                              [](std::uint32_t code) { return static_cast<std::uint16_t>(code); });
}

std::string note(const Format& format) {
  for (const NamedFormat& named : kNamedFormats) {
    if (named.format == format) return std::string(named.note);
  }
  return "";
}

// Of what tells nearly all formats apart. Every table of dtypes by format asks for it.
std::size_t hash(const Format& format) {
  return std::size_t{format.exponent_bits} << 32 | std::size_t{format.mantissa_bits} << 24 |
         std::size_t{format.is_signed} << 23 | std::size_t{format.has_inf} << 22 |
         static_cast<std::size_t>(format.nan) << 18 | static_cast<std::uint16_t>(format.bias);
}

// The dtype of another library for a format; only Python code can look it up.
nb::object foreign_dtype(const char* function, const Format& format) {
  return nb::module_::import_("octavo._dtypes").attr(function)(format);
}

}  // namespace

void bind_format(nb::module_& module) {
  nb::class_<Format>(
      module, "Format",
      "What the bits of a code mean. Formats are immutable, hashable and compare equal when every "
      "code means the same.\n\n"
      "    >>> octavo.Format('e4m3fn').max\n"
      "    448.0")
      .def(
          "__init__",
          [](Format* self, std::string_view name) { new (self) Format(parse_format(name)); },
          nb::arg("name"),
          "A format by name: e<E>m<M>, then optionally b<bias>, then nothing (IEEE 754 rules), fn, "
          "fnuz or fnu; "
          "or mxint8, int8, int4.")
      .def_prop_ro("name", &format_name, "The canonical name; Format(f.name) == f.")
      .def_prop_ro("note", &note,
                   "One line on its use; empty for formats that are not in octavo.formats().")
      .def_prop_ro("bits", &Format::bits, "Bits of one code, sign included.")
      .def_ro("exponent_bits", &Format::exponent_bits, "Bits of the exponent field.")
      .def_ro("mantissa_bits", &Format::mantissa_bits,
              "Bits of the mantissa field; the leading one is not stored.")
      .def_ro("bias", &Format::bias, "What is subtracted from the exponent field.")
      .def_prop_ro("max", &max_value, "The largest finite value.")
      .def_prop_ro("min", &lowest_value,
                   "The lowest finite value (negative in signed formats), as in numpy.finfo.")
      .def_prop_ro("smallest_normal", &min_normal,
                   "The smallest positive value with full precision.")
      .def_prop_ro("tiny", &min_normal, "The same as smallest_normal, as in numpy.finfo.")
      .def_prop_ro("smallest_subnormal", &min_positive, "The smallest positive value.")
      .def_prop_ro("eps", &epsilon,
                   "The distance from 1.0 to the next larger value of this precision.")
      .def_ro("is_signed", &Format::is_signed)
      .def_ro("has_inf", &Format::has_inf)
      .def_prop_ro("has_nan", &Format::has_nan)
      .def_ro("has_zero", &Format::has_zero)
      .def_ro("has_subnormals", &Format::has_subnormals)
      .def_prop_ro("has_negative_zero", &Format::has_negative_zero)
      .def_prop_ro("itemsize", &Format::code_bytes, "Bytes of one code that is not packed: 1 or 2.")
      .def_prop_ro(
          "code_dtype",
          [](const Format& self) { return self.code_bytes() == 1 ? "uint8" : "uint16"; },
          "The integer dtype that holds one code.")
      .def_prop_ro(
          "numpy_dtype", [](const Format& self) { return foreign_dtype("numpy_dtype", self); },
          nb::sig("def numpy_dtype(self) -> numpy.dtype | None"),
          "The dtype NumPy (with ml_dtypes, if it is installed) has for this format, or None.")
      .def_prop_ro(
          "torch_dtype", [](const Format& self) { return foreign_dtype("torch_dtype", self); },
          nb::sig("def torch_dtype(self) -> object | None"),
          "The dtype PyTorch has for this format, or None. Imports torch.")
      .def("_repr_html_",
           [](const Format& self) {
             return nb::module_::import_("octavo._html").attr("of_format")(self);
           })
      .def("codes", &codes, nb::sig("def codes(self) -> numpy.ndarray"),
           "Every code, in order: 0, 1, ..., 2**bits - 1.")
      .def(
          "values",
          [](const Format& self) {
            return table<double>(self, [&](std::uint32_t code) { return decode(self, code); });
          },
          nb::sig("def values(self) -> numpy.ndarray"),
          "The value of every code, in order, as float64; all exact.")
      .def("__repr__",
           [](const Format& self) { return "octavo.Format('" + format_name(self) + "')"; })
      .def("__str__", &format_name)
      .def(
          "__eq__",
          [](const Format& self, nb::handle other) {
            return nb::isinstance<Format>(other) && self == nb::cast<const Format&>(other);
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", &hash)
      .def(
          "__reduce__",
          [](const Format& self) {
            return nb::make_tuple(nb::type<Format>(), nb::make_tuple(format_name(self)));
          },
          nb::sig("def __reduce__(self) -> tuple[type[Format], tuple[str]]"));

  module.def(
      "formats",
      [] {
        std::vector<Format> all;
        for (const NamedFormat& named : kNamedFormats) all.push_back(named.format);
        return all;
      },
      "The formats known by a name of their own.");
}

}  // namespace octavo::python
