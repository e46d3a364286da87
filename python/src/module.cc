#include "bind.h"

NB_MODULE(_octavo, module) {
  // Arrays held by other libraries may outlive this module at exit; that is not a leak.
  nanobind::set_leak_warnings(false);
  module.doc() =
      "The doors from Python into the octavo library. Use the octavo package, not this module.";
  octavo::python::bind_error(module);
  octavo::python::bind_format(module);
  octavo::python::bind_tensor(module);
  octavo::python::bind_dlpack(module);
  octavo::python::bind_conform(module);
  octavo::python::bind_convert(module);
  octavo::python::bind_scaling(module);
  octavo::python::bind_quant(module);
  octavo::python::bind_align(module);
  octavo::python::bind_ops(module);
  octavo::python::bind_gemm(module);
  octavo::python::bind_attention(module);
  octavo::python::bind_layout(module);
  octavo::python::bind_delayed(module);
  octavo::python::bind_quantizer(module);
  octavo::python::bind_recipe(module);
  octavo::python::bind_nn(module);
  octavo::python::bind_report(module);
  octavo::python::bind_checkpoint(module);
  octavo::python::bind_pipeline(module);
  octavo::python::bind_tokenizer(module);
  octavo::python::bind_model(module);
  octavo::python::bind_eval(module);
  octavo::python::bind_backend(module);
}
