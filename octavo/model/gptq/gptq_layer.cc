// Hidden states pass the halves of a layer twice: to collect what enters the last product of the
// half, and, when that is quantized, to leave it. What enters the first ones is a norm's result.
#include "octavo/model/gptq/gptq_layer_internal.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "octavo/base/error.h"
#include "octavo/model/gptq/gptq_factor_internal.h"
#include "octavo/model/gptq/hessian_sum_internal.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/pipeline/plan/recipe_scaling_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo::gptq_detail {
namespace {

constexpr const char* kOp = "gptq";

class LayerQuantizer {
 public:
  explicit LayerQuantizer(LayerWork work)
      : work_(std::move(work)), mlp_(std::get<Mlp>(work_.layer.mlp)), run_{.run = linear_run()} {}

  LayerCodes run() {
    const TransformerLayer& layer = work_.layer;
    MultiheadAttention& attention = work_.layer.attention;
    if (has_plan(attention.qkv)) {
      HessianSum sum(attention.qkv.front().in());
      for_each_group(0.05, [&](const View& rows, const eval::WindowGroup&) {
        sum.add(layer.attention_norm.forward(rows, run_.run).view(), run_.run.threads);
      });
      quantize(attention.qkv, sum);
    }
    if (has_plan(std::span(&attention.out, 1))) {
      HessianSum sum(attention.out.in());
      const LayerObserver observer = observing(attention.out, sum);
      for_each_group(0.25, [&](const View& rows, const eval::WindowGroup& group) {
        attend(rows, group, {.run = run_.run, .observer = &observer});
      });
      quantize(std::span(&attention.out, 1), sum);
    }
    std::optional<HessianSum> into_mlp;
    if (has_plan(mlp_.up)) into_mlp.emplace(mlp_.up.front().in());
    for_each_group(0.5, [&](const View& rows, const eval::WindowGroup& group) {
      copy_into(attend(rows, group, run_), rows);
      if (into_mlp) into_mlp->add(layer.mlp_norm.forward(rows, run_.run).view(), run_.run.threads);
    });
    if (into_mlp) quantize(mlp_.up, *into_mlp);
    if (has_plan(std::span(&mlp_.down, 1))) {
      HessianSum sum(mlp_.down.in());
      const LayerObserver observer = observing(mlp_.down, sum);
      for_each_group(0.75, [&](const View& rows, const eval::WindowGroup&) {
        (void)feed_forward(rows, {.run = run_.run, .observer = &observer});
      });
      quantize(std::span(&mlp_.down, 1), sum);
    }
    for_each_group(1.0, [&](const View& rows, const eval::WindowGroup&) {
      copy_into(feed_forward(rows, run_), rows);
    });
    return std::move(codes_);
  }

 private:
  [[nodiscard]] LinearRun linear_run() const { return {.threads = work_.options.threads}; }

  // Hidden states that enter the layer, or its second half, group by group.
  template <typename Visit>
  void for_each_group(double until, const Visit& visit) {
    Tensor buffer;
    const auto& groups = work_.windows.groups;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const View rows = work_.hidden.fetch(groups[i].first, groups[i].rows(), buffer);
      visit(rows, groups[i]);
      work_.hidden.keep(groups[i].first, rows);
      const double part = static_cast<double>(i + 1) / static_cast<double>(groups.size());
      work_.progress(done_ + (until - done_) * part);
    }
    done_ = until;
  }

  Tensor attend(const View& rows, const eval::WindowGroup& group, const LayerRun& run) const {
    Tensor out = Tensor::values(rows.shape, DType::f32);
    work_.layer.attend_into(
        value_view(rows.data, DType::f32, {group.windows, group.tokens, rows.shape[1]}), out.view(),
        nullptr, run);
    return out;
  }

  Tensor feed_forward(const View& rows, const LayerRun& run) const {
    Tensor out = Tensor::values(rows.shape, DType::f32);
    work_.layer.feed_forward_into(rows, out.view(), run);
    return out;
  }

  static void copy_into(const Tensor& from, const View& rows) {
    std::ranges::copy(from.span<float>(), static_cast<float*>(rows.data));
  }

  [[nodiscard]] bool has_plan(std::span<const FrozenLinear> linears) const {
    return std::ranges::any_of(linears, [&](const FrozenLinear& linear) {
      return std::ranges::any_of(linear.modules, [&](const std::string& module) {
        return work_.weights.find(module) != nullptr;
      });
    });
  }

  [[nodiscard]] LayerObserver observing(const FrozenLinear& linear, HessianSum& sum) const {
    return {.on_input = [this, &linear, &sum](std::string_view module, const View& input) {
      if (module == linear.modules.front()) sum.add(input, run_.run.threads);
    }};
  }

  void quantize(std::span<FrozenLinear> linears, HessianSum& sum) {
    const std::string& first = linears.front().modules.front();
    const GptqFactor factor =
        factor_hessian(sum.take(), sum.width(), work_.options, text("'", shown(first, 200), "'"));
    for (FrozenLinear& linear : linears) quantize(linear, factor);
  }

  void quantize(FrozenLinear& linear, const GptqFactor& factor) {
    // What later layers see: the values of the codes, and what is not planned as it is.
    const Tensor values = linear.weight.codes
                              ? dequantize(*linear.weight.codes, DType::f32, {})
                              : converted(linear.weight.values.view(), DType::f32, kOp, run_.run);
    float* row = values.span<float>().data();
    bool changed = false;
    for (const std::string& module : linear.modules) {
      const std::int64_t rows =
          linear.modules.size() == 1 ? linear.out() : work_.weights.rows_of(module);
      if (const TensorAction* action = work_.weights.find(module); action != nullptr) {
        GptqResult result = made(*action, factor);
        dequantize_into(result.codes, value_view(row, DType::f32, {rows, linear.in()}),
                        {.threads = run_.run.threads});
        codes_[action->weight.name] = std::move(result);
        changed = true;
      }
      row += rows * linear.in();
    }
    if (!changed) return;
    linear.weight = {.values = values};
    linear.input = {};
  }

  GptqResult made(const TensorAction& action, const GptqFactor& factor) {
    GptqOptions options = work_.options;
    float amax = 0;
    if (has_tensor_scale(action.scaling)) {
      amax = work_.weights.amax(action);
      options.given_amax = &amax;
    }
    const std::vector<float> column_weights = work_.weights.column_weights(action);
    options.column_weights = column_weights;
    return gptq_with(factor, work_.weights.read(action), action.scaling, options,
                     text("'", shown(action.weight.name, 200), "'"));
  }

  LayerWork work_;
  Mlp& mlp_;
  LayerRun run_;
  LayerCodes codes_;
  double done_ = 0.0;
};

}  // namespace

LayerCodes quantize_layer(LayerWork work) {
  check(std::holds_alternative<Mlp>(work.layer.mlp), ErrorCode::unsupported, kOp,
        "the model is a mixture of experts; expected a dense decoder: round this model to nearest "
        "(--method rtn)");
  return LayerQuantizer(std::move(work)).run();
}

}  // namespace octavo::gptq_detail
