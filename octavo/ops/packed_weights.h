// Weights packed once for a CPU's matrix instructions, and multiplied by any number of rows:
//   const PackedWeights w = pack(quantize(weights, preset("mxfp8")));
//   Tensor y = gemm(x, w);
// Codes stay codes, a byte each or two of four bits in one, in the order in which a microkernel
// reads its right operand (packed panels): a GEMM then decodes them without transposing. That pays
// from a few to 32 rows of A; one row is about as fast either way. It is for an A that the matrix
// instructions multiply, of bf16 or codes: any other is multiplied as with unpacked weights, which
// are put together again for it, slower. Results are within the bounds of docs/numerics/gemm.md;
// above 32 rows they have the bits of the same product without packing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "octavo/backend/kernels.h"
#include "octavo/base/macros.h"
#include "octavo/ops/gemm.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct OCTAVO_API PackedWeights {
  Shape shape{};                     // [N, K]
  std::optional<Scaling> scaling{};  // none: values
  // Codes or values; where they are in panels, for the microkernels of this backend alone. On CPUs
  // without matrix instructions they are rows, a copy, which every backend reads.
  Tensor elements{};
  PanelOrder panels{};
  Tensor scales{}, tensor_scale{};  // as in QuantizedCopy
  std::string backend{};

  [[nodiscard]] std::int64_t nbytes() const;
};

struct PackOptions {
  int threads = 0;                   // 0: one for each core that the process may use
  const Kernels* backend = nullptr;  // null: the CPU's best
};

// [N, K] of values, or of codes whose tiles run along K, in memory of the CPU.
[[nodiscard]] OCTAVO_API PackedWeights pack(const Operand& weights,
                                            const PackOptions& options = {});

// As gemm of the weights before they were packed, with the accumulators f32 and native, on the
// backend they were packed for.
[[nodiscard]] OCTAVO_API Tensor gemm(const Operand& a, const PackedWeights& b,
                                     const GemmOptions& options = {});
OCTAVO_API void gemm_into(const Operand& a, const PackedWeights& b, const View& out,
                          const GemmOptions& options = {});
[[nodiscard]] OCTAVO_API QuantizedTensor gemm_quantized(const Operand& a, const PackedWeights& b,
                                                        const Scaling& scaling,
                                                        const GemmOptions& options = {});
OCTAVO_API void gemm_quantized_into(const Operand& a, const PackedWeights& b, QuantizedTensor& out,
                                    const GemmOptions& options = {});
[[nodiscard]] OCTAVO_API Shape gemm_shape(const Operand& a, const PackedWeights& b);

}  // namespace octavo
