// Tokenizers.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "octavo/model/tokenizer/tokenizer.h"

namespace octavo::python {

void bind_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer")
      .def_static("from_json", &Tokenizer::from_json, nb::arg("tokenizer_json"),
                  nb::arg("tokenizer_config_json"), nb::call_guard<nb::gil_scoped_release>())
      .def("encode", &Tokenizer::encode, nb::arg("text"), nb::arg("specials"),
           nb::call_guard<nb::gil_scoped_release>())
      .def(
          "decode",
          [](const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool skip) {
            return tokenizer.decode(ids, skip);
          },
          nb::arg("ids"), nb::arg("skip_specials"), nb::call_guard<nb::gil_scoped_release>())
      .def("id_of", &Tokenizer::id_of, nb::arg("token"))
      .def("token_of", &Tokenizer::token_of, nb::arg("id"))
      .def("is_special", &Tokenizer::is_special, nb::arg("id"))
      .def_prop_ro("size", &Tokenizer::size)
      .def_prop_ro("bos", &Tokenizer::bos)
      .def_prop_ro("eos", &Tokenizer::eos);
}

}  // namespace octavo::python
