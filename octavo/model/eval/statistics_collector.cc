#include "octavo/model/eval/statistics_collector_internal.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"

namespace octavo::eval {
namespace {

constexpr const char* kOp = "calibrate";
constexpr std::size_t kNamedExperts = 40;  // of one router, in a note

void check_values(std::string_view module, const View& view) {
  check(view.dtype == DType::f32 && view.shape.rank() == 2 && is_dense(view) &&
            view.device.kind == DeviceKind::cpu,
        ErrorCode::unsupported, kOp, "the input of '", shown(module, 160), "' is ",
        dtype_name(view.dtype), " of shape ", to_string(view.shape),
        "; expected dense rows of float32 on the CPU");
}

// Raises the amax of every head of [batch, heads, tokens, head_size], of any strides.
void raise_amax(const View& view, std::vector<float>& amax) {
  amax.resize(static_cast<std::size_t>(view.shape[1]));
  const auto at = [&](std::int64_t b, std::int64_t h, std::int64_t t) {
    return reinterpret_cast<const float*>(static_cast<const std::byte*>(view.data) +
                                          b * view.strides[0] + h * view.strides[1] +
                                          t * view.strides[2]);
  };
  for (std::int64_t b = 0; b < view.shape[0]; ++b)
    for (std::int64_t h = 0; h < view.shape[1]; ++h) {
      float& most = amax[static_cast<std::size_t>(h)];
      for (std::int64_t t = 0; t < view.shape[2]; ++t)
        for (const float *x = at(b, h, t), *end = x + view.shape[3]; x != end; ++x)
          most = std::fabs(*x) > most || *x != *x ? std::fabs(*x) : most;
    }
}

}  // namespace

StatisticsCollector::StatisticsCollector(const CalibrateOptions& options) : options_(options) {
  if (!options.full_hessians.empty()) full_.emplace(options.full_hessians);
}

LayerObserver StatisticsCollector::observer() {
  return {
      .on_input = [this](std::string_view module, const View& input) { add_input(module, input); },
      .on_cache = [this](std::string_view module, const View& k,
                         const View& v) { add_cache(module, k, v); },
      .on_routing = [this](std::string_view module,
                           std::span<const std::int64_t> tokens) { add_routing(module, tokens); }};
}

void StatisticsCollector::add_input(std::string_view module, const View& input) {
  check_values(module, input);
  auto at = open_.find(module);
  if (at == open_.end())
    at = open_.try_emplace(std::string(module), input.shape[1], options_of(module)).first;
  at->second.add(input, options_.threads);
}

InputSumsOptions StatisticsCollector::options_of(std::string_view module) const {
  return {.block_hessians = options_.block_hessians, .hessian = full_ && full_->is_in(module)};
}

// f32 of every module remains to the end, f64 of one layer's while it passes.
StatisticsCollector::Needs StatisticsCollector::needs(const EvalModel& model) const {
  Needs out;
  std::uint64_t largest_layer = 0;
  for (std::int64_t layer = 0; layer < model.shape().layers; ++layer) {
    std::uint64_t open = 0;
    for (const LayerInput& one : model.layer_inputs(layer)) {
      const InputSumsOptions options = options_of(one.module);
      open += InputSums::nbytes(one.width, options);
      out.bytes += InputSums::result_nbytes(one.width, options);
      ++out.modules;
      if (options.hessian) ++out.full;
    }
    largest_layer = std::max(largest_layer, open);
  }
  out.bytes += largest_layer;
  check(options_.full_hessians.empty() || out.full > 0, ErrorCode::invalid_argument, kOp,
        "got the expression '", shown(options_.full_hessians, 120),
        "' for full Hessians, and no module has a name with that; expected one such as "
        "'layers\\.0\\.mlp\\.down_proj'");
  return out;
}

void StatisticsCollector::add_cache(std::string_view module, const View& k, const View& v) {
  check(k.dtype == DType::f32 && v.dtype == DType::f32, ErrorCode::unsupported, kOp,
        "keys and values of '", shown(module, 160), "' are ", dtype_name(k.dtype),
        "; expected float32");
  CacheStatistics& of = caches_[std::string(module)];
  raise_amax(k, of.k_amax);
  raise_amax(v, of.v_amax);
}

void StatisticsCollector::add_routing(std::string_view module,
                                      std::span<const std::int64_t> tokens) {
  RoutingStatistics& of = routings_[std::string(module)];
  of.tokens.resize(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) of.tokens[i] += tokens[i];
}

ModelStatistics StatisticsCollector::finish_layer() {
  ModelStatistics out;
  for (const auto& [module, sums] : open_) {
    ModuleStatistics one = sums.statistics();
    one.module = module;
    out.modules.push_back(std::move(one));
  }
  for (auto& [module, of] : caches_) {
    of.module = module;
    out.caches.push_back(std::move(of));
  }
  for (auto& [module, of] : routings_) {
    of.module = module;
    out.routings.push_back(std::move(of));
  }
  open_.clear();
  caches_.clear();
  routings_.clear();
  return out;
}

void StatisticsCollector::add(ModelStatistics layer) {
  std::ranges::move(layer.modules, std::back_inserter(out_.modules));
  std::ranges::move(layer.caches, std::back_inserter(out_.caches));
  std::ranges::move(layer.routings, std::back_inserter(out_.routings));
}

ModelStatistics StatisticsCollector::take() {
  for (const RoutingStatistics& of : out_.routings) {
    std::string unseen;
    std::size_t count = 0;
    for (std::size_t expert = 0; expert < of.tokens.size(); ++expert)
      if (of.tokens[expert] == 0 && ++count <= kNamedExperts)
        unseen += text(unseen.empty() ? "" : ", ", expert);
    if (count > 0)
      out_.notes.push_back(text("'", shown(of.module, 160), "': no token reached ", count, " of ",
                                of.tokens.size(), " experts: ", unseen,
                                count > kNamedExperts ? ", ..." : "",
                                "; calibrate on more text, or nothing is known of their inputs"));
  }
  return std::move(out_);
}

}  // namespace octavo::eval
