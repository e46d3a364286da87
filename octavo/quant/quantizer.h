// Quantizer classes of Transformer Engine, one object per tensor: a configuration that becomes a
// Scaling and, for delayed scaling, state in the caller's memory. Names and numbers are Transformer
// Engine's, so all of them use its arithmetic (Arith::te), and a NaN among the values stays
// visible: FP8 has a code for it and its amax leaves it out; FP4 has none, so there it poisons its
// tile. Inf saturates in FP8 (times the largest e8m0 scale it is Inf again), and poisons in FP4. To
// poison tiles with faults in FP8 too, call quantize with a preset.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling.h"

namespace octavo {

class OCTAVO_API Quantizer {
 public:
  virtual ~Quantizer() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;  // of the class
  [[nodiscard]] const Scaling& scaling() const { return scaling_; }

  // A copy with the same configuration. State in the caller's memory is shared.
  [[nodiscard]] virtual std::unique_ptr<Quantizer> clone() const = 0;

  // Which copies (rowwise, columnwise) later calls make; arguments that are not given stay. One
  // must remain.
  void set_usage(std::optional<bool> rowwise, std::optional<bool> columnwise);

  [[nodiscard]] QuantizedTensor make_empty(const Shape& shape, DType source = DType::f32,
                                           Device device = {}, void* stream = nullptr) const;
  [[nodiscard]] QuantizedTensor quantize(const View& values, const QuantizeOptions& options = {});
  // Into memory of make_empty or an earlier call, of the usage there is now.
  void quantize_into(const View& values, QuantizedTensor& out, const QuantizeOptions& options = {});
  [[nodiscard]] Tensor dequantize(const QuantizedTensor& from, DType dtype = DType::f32,
                                  const QuantizeOptions& options = {}) const;
  // Records the amax as quantize would, without quantizing: for delayed scaling, `amax` is raised.
  // The other classes keep no state.
  virtual void calibrate(const View& values, const QuantizeOptions& options = {});
  // False: later calls of quantize record no amax (inference).
  void set_gathers(bool gathers) { gathers_ = gathers; }

 protected:
  explicit Quantizer(const Scaling& scaling);
  Quantizer(const Quantizer&) = default;
  Quantizer& operator=(const Quantizer&) = default;
  // Shapes and usage fit already.
  virtual void fill(const View& values, QuantizedTensor& out, const QuantizeOptions& options);

  Scaling scaling_;
  bool gathers_ = true;
};

// Delayed scaling: values are multiplied by the one f32 in `inv_scale` (Transformer Engine's
// "scale"), and the one in `amax` becomes the maximum of itself and their largest magnitude. The
// caller owns both; update_delayed, whose history's row 0 `amax` is, makes the next inv_scale. They
// are on the device of the values; on a GPU inv_scale is not checked to be positive and finite.
struct Float8Options {
  View inv_scale{}, amax{};
  Format format = e4m3fn;
  bool rowwise = true, columnwise = true;
};
class OCTAVO_API Float8Quantizer final : public Quantizer {
 public:
  explicit Float8Quantizer(const Float8Options& options);
  [[nodiscard]] std::string_view name() const override { return "Float8Quantizer"; }
  [[nodiscard]] std::unique_ptr<Quantizer> clone() const override {
    return std::make_unique<Float8Quantizer>(*this);
  }
  void calibrate(const View& values, const QuantizeOptions& options = {}) override;

 private:
  void fill(const View& values, QuantizedTensor& out, const QuantizeOptions& options) override;
  void check_device(const View& values) const;
  float *inv_scale_, *amax_;
  Device device_;
};

// One scale, from the tensor itself.
struct Float8CurrentScalingOptions {
  Format format = e4m3fn;
  bool rowwise = true, columnwise = true;
  bool power_of_two = false;
  float min_amax = 0.0F;  // a smaller amax counts as this
  // If given, reduces this process's amax over all processes that share the tensor. It gets a host
  // number, so the call synchronizes and cannot be captured. Less than zero and NaN are errors.
  std::function<float(float)> reduce_amax{};
};
class OCTAVO_API Float8CurrentScalingQuantizer final : public Quantizer {
 public:
  explicit Float8CurrentScalingQuantizer(const Float8CurrentScalingOptions& options = {});
  [[nodiscard]] std::string_view name() const override { return "Float8CurrentScalingQuantizer"; }
  [[nodiscard]] std::unique_ptr<Quantizer> clone() const override {
    return std::make_unique<Float8CurrentScalingQuantizer>(*this);
  }

 private:
  void fill(const View& values, QuantizedTensor& out, const QuantizeOptions& options) override;
  std::function<float(float)> reduce_amax_;
};

// f32 scales of tiles of 1 x 128 (one dimension: activations, gradients) or 128 x 128 (two:
// weights).
struct Float8BlockOptions {
  Format format = e4m3fn;
  bool rowwise = true, columnwise = true;
  bool power_of_two = true;
  float min_amax = 0.0F;
  int block_dims = 2;
};
class OCTAVO_API Float8BlockQuantizer final : public Quantizer {
 public:
  explicit Float8BlockQuantizer(const Float8BlockOptions& options = {});
  [[nodiscard]] std::string_view name() const override { return "Float8BlockQuantizer"; }
  [[nodiscard]] std::unique_ptr<Quantizer> clone() const override {
    return std::make_unique<Float8BlockQuantizer>(*this);
  }
};

// e8m0 scales of tiles of 1 x 32, or 32 x 32 for weights.
struct MXFP8Options {
  Format format = e4m3fn;
  bool rowwise = true, columnwise = true;
  bool two_dimensional = false;
};
class OCTAVO_API MXFP8Quantizer final : public Quantizer {
 public:
  explicit MXFP8Quantizer(const MXFP8Options& options = {});
  [[nodiscard]] std::string_view name() const override { return "MXFP8Quantizer"; }
  [[nodiscard]] std::unique_ptr<Quantizer> clone() const override {
    return std::make_unique<MXFP8Quantizer>(*this);
  }
};

// e4m3 scales of tiles of 1 x 16, or 16 x 16 for weights, and one f32 for the tensor. The Hadamard
// transform is of the columnwise copy only, and not for 16 x 16 tiles; its results are rounded to
// bf16, as Transformer Engine has them. The scale of a tile with NaN or Inf is NaN, since FP4 has
// neither: Transformer Engine would make the largest value of them.
inline constexpr std::uint16_t kTeHadamardSigns = 0xD7E8;  // Transformer Engine's fixed choice
struct NVFP4Options {
  bool rowwise = true, columnwise = true;
  bool with_rht = false;
  std::uint16_t rht_signs = kTeHadamardSigns;
  bool two_dimensional = false;
  bool stochastic_rounding = false;
  std::uint64_t seed = 0;
};
class OCTAVO_API NVFP4Quantizer final : public Quantizer {
 public:
  explicit NVFP4Quantizer(const NVFP4Options& options = {});
  [[nodiscard]] std::string_view name() const override { return "NVFP4Quantizer"; }
  [[nodiscard]] std::unique_ptr<Quantizer> clone() const override {
    return std::make_unique<NVFP4Quantizer>(*this);
  }
  // A seed always gives the same draws: training takes a new one for every step and tensor.
  void set_seed(std::uint64_t seed) { scaling_.encode.seed = seed; }
};

}  // namespace octavo
