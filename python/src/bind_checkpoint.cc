// Quantized tensors in files.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "octavo/checkpoint/quantized_file.h"

namespace octavo::python {
namespace {

void save(const std::string& path, const std::vector<std::string>& names,
          const std::vector<const QuantizedTensor*>& tensors) {
  const nb::gil_scoped_release released;
  QuantizedTensors all;
  for (std::size_t i = 0; i < names.size(); ++i) all.emplace(names[i], *tensors[i]);
  save_quantized(path, all);
}

nb::dict load(const std::string& path) {
  QuantizedTensors all;
  {
    const nb::gil_scoped_release released;
    all = load_quantized(path);
  }
  nb::dict out;
  for (auto& [name, tensor] : all)
    out[nb::str(name.c_str(), name.size())] = nb::cast(std::move(tensor));
  return out;
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  module.def("save_quantized", &save, nb::arg("path"), nb::arg("names"), nb::arg("tensors"));
  module.def("load_quantized", &load, nb::arg("path"));
}

}  // namespace octavo::python
