// Shared by verify's rules. A rule is a function over a VerifyView of the checkpoint; rules are
// grouped into files by what they check, and listed in one table in verify.cc.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/static_scales_internal.h"
#include "octavo/checkpoint/verify/architecture_internal.h"
#include "octavo/checkpoint/verify/ignore_list_internal.h"
#include "octavo/checkpoint/verify/verify.h"

namespace octavo {

// The rule of verify_against (pipeline/verify_against.h), which needs a second checkpoint.
inline constexpr std::string_view kAgainstRule = "against";

// Short names, because rules list loaders often.
inline constexpr Loader kV = Loader::vllm, kH = Loader::transformers, kS = Loader::sglang,
                        kT = Loader::trtllm, kC = Loader::comfyui, kO = Loader::octavo;

// Magnitudes of the weights in a sample of tiles, codes times scales, and how much of the format's
// range the codes use.
struct Magnitude {
  bool looked = false;
  std::int64_t tiles = 0;     // with nonzero codes and a scale that is not at its type's limit
  std::int64_t reaching = 0;  // of them, with a code of a quarter of the format's maximum or more
  std::int64_t emptied = 0;   // all-zero tiles, where such tiles have differing scales
  float typical = 0;          // median over tiles of the tile's amax
  float rms = 0;
  bool alike = false;       // are the scales of all these tiles the same?
  bool powers = false;      // and powers of two?
  std::int64_t topped = 0;  // of them, with a code at the format's maximum, but for rounding
  std::int64_t levels = 0;  // how many different magnitudes the codes have, up to kManyLevels
  float kurtosis = 0;       // mean over tiles: 3 for normal values, 1.8 for uniform ones
  float peaks = 0;          // mean over tiles: values of 0.95 of the largest or more
};
inline constexpr std::int64_t kManyLevels = 5;  // ternary weights have one

// Scales of the same number.
struct ScaleCount {
  float scale = 0.0F;
  std::int64_t count = 0;
};

// A weight with the data that rules need.
struct VerifiedWeight {
  const FoundWeight* found = nullptr;
  const DialectTensor* codes = nullptr;
  const DialectTensor* scales = nullptr;
  const DialectTensor* tensor_scale = nullptr;
  std::optional<Scheme> scheme{};
  Magnitude reach{};
  mutable std::optional<std::vector<ScaleCount>> counts{};  // scale_counts, once they are known
};

// verify_groups.cc: config_groups of compressed-tensors. Resolution as in compressed-tensors and
// vLLM: a full name before an expression, an expression before a class, and among several
// expressions the first in alphabetical order.
class ConfigGroups {
 public:
  explicit ConfigGroups(const Json& words);  // quantization_config; must outlive this object
  // The config group of a module; null where no target matches.
  [[nodiscard]] const Json& of(const std::string& module) const;

 private:
  struct Expression {
    IgnoreExpression expression;
    const Json* group;
  };
  std::map<std::string_view, const Json*> exact_;
  std::map<std::string_view, Expression> expressions_;
  const Json* by_class_ = nullptr;
  const Json* unread_ = nullptr;  // the first with an expression that octavo cannot parse
};

struct VerifyView {
  const CheckpointReader& checkpoint;
  const VerifyOptions& options;
  Recognized recognized{};
  const Json& words;        // quantization_config
  std::string_view method;  // its quant_method; empty where it has none
  ConfigGroups groups;
  std::vector<VerifiedWeight> weights{};
  std::vector<std::string> plain_linears{};  // modules of unquantized matrices
  std::set<std::string> misfits{};           // modules whose parts do not fit together
  std::set<std::string> names{};             // tensor names of the unquantized model
  std::optional<Architecture> architecture{};
  std::set<std::string> changed{};  // files whose data are not those that octavo wrote
  bool as_written = false;          // all of them have sums of octavo's, and none was changed
};

class Findings {
 public:
  void check_for(std::vector<Loader> loaders) { loaders_ = std::move(loaders); }
  // `of_data`: the rule is on numbers, which are the same for whatever reads them. An error for the
  // four servers is then one for comfyui and octavo too, and a silent one.
  void begin(std::string_view rule, bool of_data = false) {
    rule_ = rule;
    of_data_ = of_data;
    seen_.clear();
  }

  // Adds the finding for each listed loader that was requested.
  void add(Severity severity, std::initializer_list<Loader> loaders, std::string_view tensor,
           const std::string& message);
  void error(std::initializer_list<Loader> loaders, std::string_view tensor,
             const std::string& message) {
    add(Severity::error, loaders, tensor, message);
  }
  // An error of which the loader says nothing: it loads something else.
  void silent_error(std::initializer_list<Loader> loaders, std::string_view tensor,
                    const std::string& message);
  void warn(std::initializer_list<Loader> loaders, std::string_view tensor,
            const std::string& message) {
    add(Severity::warning, loaders, tensor, message);
  }
  // One finding for all loaders.
  void error_for_all(std::string_view tensor, const std::string& message);

  [[nodiscard]] std::vector<Finding> take() { return std::move(findings_); }

 private:
  void add(Severity severity, Loader loader, std::string_view tensor, const std::string& message,
           bool silent);

  std::vector<Loader> loaders_;
  std::string_view rule_;
  bool of_data_ = false;
  // Findings of the current rule, to drop duplicates.
  std::set<std::tuple<std::string, Loader, std::string>> seen_;
  std::vector<Finding> findings_;
};

// The loaders that verify() checks for with these options.
[[nodiscard]] std::vector<Loader> checked_loaders(const VerifyOptions& options,
                                                  const Recognized& recognized);

using RuleFunction = void (*)(const VerifyView&, Findings&);
struct Rule {
  std::string_view id, what;
  RuleFunction check;
  bool of_any = false;   // also applies to unquantized checkpoints
  bool of_data = false;  // Findings::begin
};

// verify_layers.cc: missing config, weights and layers; orphaned scales.
void check_config_there(const VerifyView&, Findings&);
void check_weights_there(const VerifyView&, Findings&);
void check_layers(const VerifyView&, Findings&);
void check_orphans(const VerifyView&, Findings&);

// verify_architecture.cc: tensors and shapes that follow from config.json.
void check_architecture(const VerifyView&, Findings&);
void check_shapes(const VerifyView&, Findings&);
void check_unknown_tensors(const VerifyView&, Findings&);
// verify_quantized.cc: quantized as a whole or not, as config.json declares; transforms.
void check_quantized(const VerifyView&, Findings&);
void check_transforms(const VerifyView&, Findings&);
// verify_values.cc: NaN and Inf in unquantized tensors.
void check_values(const VerifyView&, Findings&);
// verify_sums.cc: files against the checksums in config.json.
void look_at_sums(VerifyView&);
void check_sums(const VerifyView&, Findings&);

// verify_method.cc: which loader supports which quant_method, scheme and names.
void check_method(const VerifyView&, Findings&);
void check_support(const VerifyView&, Findings&);
void check_scale_names(const VerifyView&, Findings&);
void check_file_metadata(const VerifyView&, Findings&);
// verify_groups.cc: targets of config_groups.
void check_groups(const VerifyView&, Findings&);
// verify_sidecar.cc: the sidecar file hf_quant_config.json against config.json, and the index
// against the files.
void check_sidecar_file(const VerifyView&, Findings&);
void check_index(const VerifyView&, Findings&);
// verify_tensors.cc: types, shapes and divisibility of one weight; tensor parallelism.
void check_code_types(const VerifyView&, Findings&);
void check_scale_types(const VerifyView&, Findings&);
void check_scale_shapes(const VerifyView&, Findings&);
void check_divisible(const VerifyView&, Findings&);
void check_tensor_parallel(const VerifyView&, Findings&);
void check_stacks(const VerifyView&, Findings&);
// verify_scales.cc: values of scales.
void check_scale_numbers(const VerifyView&, Findings&);
void check_scale_bf16(const VerifyView&, Findings&);
void check_scale_powers(const VerifyView&, Findings&);
void check_fused_scales(const VerifyView&, Findings&);
// verify_magnitude.cc, verify_plausible.cc: magnitudes of decoded weights.
[[nodiscard]] Magnitude magnitude_of(const VerifyView&, const VerifiedWeight&);
void check_magnitude(const VerifyView&, Findings&);
void check_plausible(const VerifyView&, Findings&);
// verify_neighbours.cc: the same matrix in other layers, and all matrices beside what is known of
// models. verify_overwritten.cc: one scale in all tiles. Parts of the rule `plausible`.
void check_beside_layers(const VerifyView&, Findings&);
void check_all_together(const VerifyView&, Findings&);
void check_overwritten(const VerifyView&, Findings&);
// An error; a warning where config.json's sums say that it is as octavo made it from its source.
void suspect(const VerifyView& view, std::string_view tensor, const std::string& message,
             Findings& out);
void check_second_level(const VerifyView&, Findings&);
// verify_codes.cc: values of codes.
void check_codes(const VerifyView&, Findings&);
void check_zero_scales(const VerifyView&, Findings&);
// verify_modules.cc: which modules are quantized, and whether fused ones have one scheme.
void check_fused_schemes(const VerifyView&, Findings&);
void check_special_modules(const VerifyView&, Findings&);
// verify_ignore_list.cc: the ignore list.
void check_ignore_list(const VerifyView&, Findings&);
void check_ignored_but_quantized(const VerifyView&, Findings&);
// verify_declared.cc, verify_config_keys.cc: the scheme that config.json declares, and its other
// keys.
void check_declared_scheme(const VerifyView&, Findings&);
void check_config_keys(const VerifyView&, Findings&);
// verify_activations.cc: static activation and KV cache scales.
void check_activation_scales(const VerifyView&, Findings&);
// Reports static scales with this fault; called by the rules on types, shapes and values of scales.
void check_static_scales(const VerifyView& view, StaticFault fault, Findings& out);

// Does a target of a config group (class, full name or expression) match a module?
[[nodiscard]] bool is_target(std::string_view target, const std::string& module);
// The ignore list that loaders use: config.json's under any of its keys, else the sidecar file's.
[[nodiscard]] const Json& ignore_list_of(const VerifyView& view);
// A stored number; a byte that is not F8_E4M3 is E8M0 and gives its power of two.
[[nodiscard]] float stored_number(const std::byte* bytes, safetensors::StoredType type);
// All scales of a weight as multipliers, without the second level.
[[nodiscard]] std::vector<float> scale_numbers(const VerifyView& view,
                                               const VerifiedWeight& weight);
// Which numbers they are and how many of each, in no order: what rules ask that do not ask where.
// Of scales of a byte, of which there may be one for sixteen weights, they are counted once.
[[nodiscard]] std::vector<ScaleCount> scale_counts(const VerifyView& view,
                                                   const VerifiedWeight& weight);
// The second level as a multiplier; 1 where there is none.
[[nodiscard]] float second_level(const VerifyView& view, const VerifiedWeight& weight);

}  // namespace octavo
