// The extension module octavo._octavo: thin bindings, one file per room. The Python API is in
// python/octavo/; the bindings take plain views.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "octavo/ops/activation.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/round/policy.h"
#include "octavo/tensor/dlpack.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo::python {

namespace nb = nanobind;

// Element type as passed from Python: a Format (codes), or a value type by name ("float32").
using Kind = std::variant<Format, std::string>;

// octavo._octavo.Tensor: memory of the library, or of a Python object that it keeps alive.
struct SharedTensor {
  Tensor tensor;
  Kind kind;
  DlpackCodes codes = DlpackCodes::typed;
  // On a device, the stream that writes octavo's own memory: readers on other streams must wait for
  // it.
  std::optional<std::uintptr_t> written_on{};
};
SharedTensor share(const Tensor& tensor);
// Keeps a Python object alive. The last reference may be dropped by a thread that does not hold the
// GIL.
std::shared_ptr<void> kept_alive(nb::object owner);

// Null for a tensor without memory.
std::optional<SharedTensor> share_if_there(const Tensor& tensor);

// Throws Error(invalid_argument) where a quantization holds memory that must not be written.
void check_writable(const QuantizedTensor& out);

// Counts as Python gets them: (saturated, flushed, nan).
using CountTuple = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
inline CountTuple count_tuple(const Counts& counts) {
  return {counts.saturated, counts.flushed, counts.nan};
}

// A CUDA device by its index, or the CPU (-1); a stream by its address.
inline Device device_of(int cuda) { return cuda < 0 ? Device{} : Device{DeviceKind::cuda, cuda}; }
inline int cuda_index(Device device) { return device.kind == DeviceKind::cpu ? -1 : device.index; }
inline void* stream_of(std::uintptr_t stream) { return reinterpret_cast<void*>(stream); }

// Counters of a call, on the device of the data. Reading them in Python synchronizes.
class Counting {
 public:
  Counting(bool wanted, Device device, std::uintptr_t stream);
  [[nodiscard]] Counts* at();  // null if not wanted
  [[nodiscard]] std::optional<CountTuple> found();

 private:
  bool wanted_;
  std::uintptr_t stream_;
  Counts host_{};
  Tensor there_;
};

// Throws Error(invalid_argument) where the library's Shape would cut sizes off.
Shape checked_shape(const std::vector<std::int64_t>& sizes);
std::vector<std::int64_t> list_of(const Shape& shape);

// "gelu", "gelu_tanh", "relu", "silu". Throws Error(invalid_argument) that lists them.
ActivationKind parse_activation(std::string_view name, std::string_view op);

void bind_error(nb::module_& module);
void bind_format(nb::module_& module);
void bind_tensor(nb::module_& module);
void bind_dlpack(nb::module_& module);
void bind_conform(nb::module_& module);
void bind_convert(nb::module_& module);
void bind_scaling(nb::module_& module);
void bind_quant(nb::module_& module);
void bind_align(nb::module_& module);
void bind_ops(nb::module_& module);
void bind_attention(nb::module_& module);
void bind_gemm(nb::module_& module);
void bind_layout(nb::module_& module);
void bind_delayed(nb::module_& module);
void bind_quantizer(nb::module_& module);
void bind_recipe(nb::module_& module);
void bind_nn(nb::module_& module);
void bind_report(nb::module_& module);
void bind_checkpoint(nb::module_& module);
void bind_pipeline(nb::module_& module);
void bind_model(nb::module_& module);
void bind_tokenizer(nb::module_& module);
void bind_eval(nb::module_& module);
void bind_backend(nb::module_& module);

}  // namespace octavo::python
