#include <algorithm>
#include <mutex>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/pipeline/plan/recipe_scaling_internal.h"
#include "octavo/pipeline/stream/decoded_values_internal.h"
#include "octavo/pipeline/stream/stream_files_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/pipeline/stream/work_loop_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";
constexpr std::uint64_t kLeastMemory = 16ULL << 20;
// Histograms need not see every row of a large tensor to show its shape.
constexpr std::int64_t kCountedValues = 1 << 16, kFewestRows = 128;
std::int64_t histogram_every(const TensorAction& action) {
  return std::clamp<std::int64_t>(element_count(action.weight.shape) / kCountedValues, 1,
                                  kFewestRows);
}

// Memory of one thread, kept from band to band.
struct Workspace {
  Window window;
  QuantizedTensor band;
  Tensor wide_scales;
};

bool same_memory(const QuantizedTensor& band, const Shape& shape, const Scaling& scaling) {
  return band.rowwise.exists() && band.shape == shape && band.scaling == scaling;
}

class Streaming {
 public:
  Streaming(const CheckpointReader& source, const QuantizePlan& plan,
            const QuantizeCheckpointOptions& options, const Destination& destination)
      : source_(source),
        plan_(plan),
        options_(options),
        results_(plan.actions.size()),
        files_(source, plan, options, destination, results_),
        amaxes_(plan.actions.size(), 0.0F),
        bands_of_(plan.actions.size(), 0),
        bands_done_(plan.actions.size(), 0) {
    for (const Band& band : cut_bands(source, plan)) {
      const std::size_t file = plan.actions[band.action].file;
      if (files_.is_finished(file)) continue;
      files_.expect_band(file);
      ++bands_of_[band.action];
      bands_.push_back(band);
    }
    find_amax_bands();
  }

  std::vector<ActionResult> run() {
    files_.check_room();
    std::uint64_t bytes = 0;
    for (const Band& band : bands_) bytes += bytes_of(band);
    for (const Band& band : amax_bands_) bytes += looked_at(band);
    const int threads = threads_within_memory();
    workspaces_.resize(static_cast<std::size_t>(threads));
    WorkLoop loop(threads, bytes, options_.on_progress, options_.every_band);
    loop.run(amax_bands_.size(), [&](int thread, std::size_t i) {
      find_amax(workspaces_[static_cast<std::size_t>(thread)], amax_bands_[i]);
      loop.advance(looked_at(amax_bands_[i]), name_of_action(amax_bands_[i]));
    });
    share_amaxes();
    files_.finish_empty();
    loop.run(bands_.size(), [&](int thread, std::size_t i) {
      do_band(workspaces_[static_cast<std::size_t>(thread)], bands_[i]);
      loop.advance(bytes_of(bands_[i]), name_of_action(bands_[i]));
    });
    loop.finish("");
    return std::move(results_);
  }

 private:
  [[nodiscard]] const TensorAction& action_of(const Band& band) const {
    return plan_.actions[band.action];
  }
  [[nodiscard]] std::string_view name_of_action(const Band& band) const {
    return source_.tensors()[action_of(band).tensor].name();
  }
  [[nodiscard]] std::uint64_t bytes_of(const Band& band) const {
    return static_cast<std::uint64_t>(band.rows * row_layout(source_, action_of(band)).row_bytes);
  }

  // What looking for an amax counts as in the progress: it takes about a quarter of the time that
  // quantizing, measuring and writing take, and the time that is left follows from what is done.
  [[nodiscard]] std::uint64_t looked_at(const Band& band) const { return bytes_of(band) / 4; }

  // All members of a group are looked at, those of finished files too: their codes came from the
  // amax of all.
  void find_amax_bands() {
    std::vector<bool> wanted_group(static_cast<std::size_t>(plan_.groups), false);
    for (const Band& band : bands_)
      if (action_of(band).group >= 0)
        wanted_group[static_cast<std::size_t>(action_of(band).group)] = true;
    for (const Band& band : cut_bands(source_, plan_)) {
      const TensorAction& action = action_of(band);
      if (!action.quantize || action.found || !has_tensor_scale(action.scaling)) continue;
      const bool wanted = action.group >= 0 ? wanted_group[static_cast<std::size_t>(action.group)]
                                            : !files_.is_finished(action.file);
      if (wanted) amax_bands_.push_back(band);
    }
  }

  [[nodiscard]] int threads_within_memory() const {
    check(options_.max_memory >= kLeastMemory, ErrorCode::invalid_argument, kOp,
          "got max_memory = ", options_.max_memory, ", wanted at least ", kLeastMemory);
    check(options_.threads >= 0 && options_.threads <= kMaxThreads, ErrorCode::invalid_argument,
          kOp, "got threads = ", options_.threads, ", wanted 0 (all) to ", kMaxThreads);
    const int wanted = options_.threads == 0 ? available_threads() : options_.threads;
    const std::uint64_t each = std::max<std::uint64_t>(1, band_memory(source_, plan_, bands_));
    const std::uint64_t fit = (options_.max_memory - memory_behind(options_.max_memory)) / each;
    check(fit > 0, ErrorCode::invalid_argument, kOp, "a band of rows needs ", each,
          " bytes and max_memory is ", options_.max_memory, "; raise it");
    return static_cast<int>(std::min<std::uint64_t>(fit, static_cast<std::uint64_t>(wanted)));
  }

  void find_amax(Workspace& work, const Band& band) {
    const TensorAction& action = action_of(band);
    const View values = work.window.read_values(source_, action, band);
    NonFiniteFound ignored;  // counted when it is quantized
    const float amax =
        checked_amax(values, source_, action, band, plan_.options.clamp_non_finite, ignored);
    const std::lock_guard lock(merging_);
    amaxes_[band.action] = std::max(amaxes_[band.action], amax);
  }

  void share_amaxes() {
    std::vector<float> group(static_cast<std::size_t>(plan_.groups), 0.0F);
    for (std::size_t i = 0; i < plan_.actions.size(); ++i)
      if (const int g = plan_.actions[i].group; g >= 0)
        group[static_cast<std::size_t>(g)] =
            std::max(group[static_cast<std::size_t>(g)], amaxes_[i]);
    for (std::size_t i = 0; i < plan_.actions.size(); ++i)
      if (const int g = plan_.actions[i].group; g >= 0)
        amaxes_[i] = group[static_cast<std::size_t>(g)];
  }

  void do_band(Workspace& work, const Band& band) {
    const TensorAction& action = action_of(band);
    safetensors::FileWriter& writer = files_.writer_of(action.file);
    if (action.found) {
      take_over_band(band, writer);
    } else if (action.quantize) {
      quantize_band(work, band, writer);
    } else {
      copy_band(work, band, writer);
    }
    files_.band_is_done(action.file);
  }

  // Codes that are there already, in another spelling or decoded.
  void take_over_band(const Band& band, safetensors::FileWriter& writer) {
    const TensorAction& action = action_of(band);
    const QuantizedTensor codes = read_band(source_, plan_.source_dialect, *action.found,
                                            row_in_found(action, band), band.rows);
    if (action.quantize) {
      for (const BandBytes& part :
           spell_band(plan_.options.target, action.weight, band.first_row, codes))
        writer.write(writer.at(action.outputs[part.tensor].plan.name), part.offset, part.bytes);
    } else {
      const Tensor values = dequantize(codes, action.weight.source, {.threads = 1});
      settle_overflow(values, action.weight.name, band.first_row, plan_.options.clamp_non_finite);
      const TensorAction& leader = action.joins ? plan_.actions[*action.joins] : action;
      write_decoded(values, action.part, band.first_row,
                    writer.at(leader.outputs.front().plan.name), writer);
    }
    const std::uint64_t content = content_of(codes, row_in_found(action, band));
    const std::lock_guard lock(merging_);
    results_[band.action].content += content;
  }

  void copy_band(Workspace& work, const Band& band, safetensors::FileWriter& writer) {
    const TensorAction& action = action_of(band);
    std::uint64_t offset = 0;
    const auto bytes = work.window.read_bytes(source_, action, band, offset);
    const SpelledTensor& output = action.outputs.front();
    writer.write(
        writer.at(output.plan.name), offset,
        output.constant.empty() ? bytes : std::as_bytes(std::span<const char>(output.constant)));
    const std::uint64_t content =
        content_sum(bytes, row_layout(source_, action).row_bytes, band.first_row);
    const NonFiniteFound found =
        safetensors::non_finite_in(bytes, source_.tensors()[action.tensor].entry->type);
    const std::lock_guard lock(merging_);
    ActionResult& result = results_[band.action];
    result.content += content;
    result.found.nan += found.nan;
    result.found.inf += found.inf;
  }

  void quantize_band(Workspace& work, const Band& band, safetensors::FileWriter& writer) {
    const TensorAction& action = action_of(band);
    const View values = work.window.read_values(source_, action, band);
    ContentSum content{.first_row = row_in_source(source_, action, band)};
    NonFiniteFound found;
    const float band_amax = checked_amax(values, source_, action, band,
                                         plan_.options.clamp_non_finite, found, &content);
    if (!same_memory(work.band, values.shape, action.scaling))
      work.band = make_quantized(values.shape, values.dtype, action.scaling);
    QuantizeOptions options{.threads = 1};
    const float amax = amaxes_[band.action];
    if (has_tensor_scale(action.scaling)) options.given_amax = &amax;
    quantize_into(values, work.band, options);
    BandError error;
    if (options_.measure)
      error = measure_band(values, work.band,
                           {.histogram_every = histogram_every(action),
                            .first_row = band.first_row,
                            .amax = band_amax,
                            .known_max_relative = known_max_relative(band)});
    error.input.nan += found.nan;
    error.input.inf += found.inf;
    for (const BandBytes& part :
         spell_band(plan_.options.target, action.weight, band.first_row, as_stored(work, action)))
      writer.write(writer.at(action.outputs[part.tensor].plan.name), part.offset, part.bytes);
    const std::lock_guard lock(merging_);
    ActionResult& result = results_[band.action];
    result.content += content.sum;
    result.found.nan += found.nan;
    result.found.inf += found.inf;
    if (!options_.measure) return;
    result.error.add(band.ordinal, error);
    if (++bands_done_[band.action] == bands_of_[band.action]) result.error.settle();
  }

  [[nodiscard]] float known_max_relative(const Band& band) {
    const std::lock_guard lock(merging_);
    return static_cast<float>(results_[band.action].error.max_relative());
  }

  // With scales of f32 where the file gets those and codes were made with bf16 ones.
  static QuantizedTensor as_stored(Workspace& work, const TensorAction& action) {
    QuantizedTensor band = work.band;
    if (action.scaling == action.weight.scaling) return band;
    const Tensor& narrow = work.band.rowwise.scales;
    if (work.wide_scales.owner() == nullptr || work.wide_scales.shape() != narrow.shape())
      work.wide_scales = Tensor::values(narrow.shape(), DType::f32);
    const auto from = narrow.span<std::uint16_t>();
    const auto to = work.wide_scales.span<std::uint32_t>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<std::uint32_t>(from[i]) << 16;
    band.scaling = action.weight.scaling;
    band.rowwise.scales = work.wide_scales;
    return band;
  }

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  const QuantizeCheckpointOptions& options_;
  std::vector<ActionResult> results_;
  StreamFiles files_;
  std::vector<float> amaxes_;
  std::vector<std::uint32_t> bands_of_, bands_done_;  // of actions
  std::vector<Band> bands_, amax_bands_;
  std::vector<Workspace> workspaces_;
  std::mutex merging_;
};

}  // namespace

std::vector<ActionResult> stream_checkpoint(const CheckpointReader& source,
                                            const QuantizePlan& plan,
                                            const QuantizeCheckpointOptions& options,
                                            const Destination& destination) {
  return Streaming(source, plan, options, destination).run();
}

}  // namespace octavo
