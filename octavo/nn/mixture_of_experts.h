// MixtureOfExperts: every token goes to the top-k experts of its router, and their
// results are added, times the router's weights; shared experts get all tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/nn/frozen_linear.h"
#include "octavo/nn/layer_observer.h"
#include "octavo/nn/mlp.h"
#include "octavo/tensor/view.h"

namespace octavo {

enum class RouterKind : std::uint8_t {
  softmax_then_top,  // softmax over all experts, the largest taken (Mixtral, Qwen)
  top_then_softmax,  // the largest taken, softmax over those (gpt-oss)
};

// One product of all experts. Where all matrices are values, or codes with the same scaling, they
// are a stack, [experts, out, in], for one grouped GEMM; else there is one for each.
struct OCTAVO_API ExpertLinear {
  std::vector<std::vector<std::string>> modules{};  // of each expert, for observers
  LinearWeight stack{};
  std::vector<FrozenLinear> each{};
  Tensor bias{};  // f32, [experts, out]; or empty
  InputQuantization input{};

  [[nodiscard]] std::int64_t out() const;
  [[nodiscard]] std::int64_t nbytes() const;
  // Rows of x sorted by expert, `rows` of them for each, into columns of the same rows of y, f32.
  void forward_into(const View& x, std::span<const std::int64_t> rows, const View& y,
                    const LayerRun& run = {}) const;
};

struct OCTAVO_API MixtureOfExperts {
  std::string module{};  // with the router, for observers
  RouterKind kind = RouterKind::softmax_then_top;
  std::int64_t top_k = 0;   // experts of a token
  bool normalized = false;  // chosen weights sum to one
  FrozenLinear router{};
  MlpActivation activation{};
  std::vector<ExpertLinear> up{};  // gate and up side by side, or both in one
  ExpertLinear down{};
  std::optional<Mlp> shared{};
  FrozenLinear shared_gate{};  // [1, hidden]: sigmoid of it times the shared expert's result

  // [rows, hidden] into [rows, hidden], dense f32, with what `residual` has, dense f32.
  void forward_into(const View& x, const View& y, const LayerRun& run, const View& residual) const;
  [[nodiscard]] std::int64_t nbytes() const;
};

}  // namespace octavo
