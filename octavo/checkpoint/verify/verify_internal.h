// What the rules of verify share. A rule is a function over a View of the checkpoint; they stand in
// files by what they look at, and in one table in verify.cc.
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

// Rules name loaders in lists, so these are short.
inline constexpr Loader kV = Loader::vllm, kH = Loader::transformers, kS = Loader::sglang,
                        kT = Loader::trtllm;

// How large the weights of a sample of tiles are, codes and scales together.
struct Reach {
  bool looked = false;
  std::int64_t tiles = 0;     // that have codes, and a scale that is no limit of its type
  std::int64_t reaching = 0;  // of them, with a code of a quarter of the format's largest
  std::int64_t emptied = 0;   // tiles of zeros, where those have scales that differ
  float typical = 0;          // the largest magnitude of a tile, in the middle one
  float rms = 0;
};

// A weight with what rules ask of it.
struct VerifiedWeight {
  const FoundWeight* found = nullptr;
  const SpelledTensor* codes = nullptr;
  const SpelledTensor* scales = nullptr;
  const SpelledTensor* tensor_scale = nullptr;
  std::optional<Scheme> scheme{};
  Reach reach{};
};

// verify_groups.cc: the groups of compressed-tensors' config_groups. As compressed-tensors and vLLM
// choose: a full name before an expression, an expression before a class, and of several
// expressions the first in the order of their letters.
class Groups {
 public:
  explicit Groups(const Json& words);  // of quantization_config; it must outlive this
  // The group that a module is in; null where it is in none.
  [[nodiscard]] const Json& of(const std::string& module) const;

 private:
  struct Expression {
    SkipExpression expression;
    const Json* group;
  };
  std::map<std::string_view, const Json*> exact_;
  std::map<std::string_view, Expression> expressions_;
  const Json* by_class_ = nullptr;
  const Json* unread_ = nullptr;  // the first with an expression that octavo does not read
};

struct VerifyView {
  const CheckpointReader& checkpoint;
  const VerifyOptions& options;
  Recognized recognized{};
  const Json& words;        // quantization_config
  std::string_view method;  // its quant_method; empty where it has none
  Groups groups;
  std::vector<VerifiedWeight> weights{};
  std::vector<std::string> plain_linears{};  // modules of matrices that are not quantized
  std::set<std::string> misfits{};           // modules whose parts do not fit together
  std::set<std::string> names{};             // of tensors as the unquantized model has them
  std::optional<Architecture> architecture{};
};

class Findings {
 public:
  explicit Findings(const VerifyOptions& options) : options_(options) {}
  void begin(std::string_view rule) {
    rule_ = rule;
    seen_.clear();
  }

  // For those of these loaders that were asked for.
  void add(Severity severity, std::initializer_list<Loader> loaders, std::string_view tensor,
           const std::string& message);
  void error(std::initializer_list<Loader> loaders, std::string_view tensor,
             const std::string& message) {
    add(Severity::error, loaders, tensor, message);
  }
  void warn(std::initializer_list<Loader> loaders, std::string_view tensor,
            const std::string& message) {
    add(Severity::warning, loaders, tensor, message);
  }
  // For all of them at once.
  void error_for_all(std::string_view tensor, const std::string& message);

  [[nodiscard]] std::vector<Finding> take() { return std::move(findings_); }

 private:
  const VerifyOptions& options_;
  std::string_view rule_;
  // What the rule that is asked has said already.
  std::set<std::tuple<std::string, Loader, std::string>> seen_;
  std::vector<Finding> findings_;
};

using RuleFunction = void (*)(const VerifyView&, Findings&);
struct Rule {
  std::string_view id, what;
  RuleFunction check;
  bool of_any = false;  // asked of checkpoints that are not quantized, too
};

// verify_layers.cc: what is missing, and what is there for nothing.
void check_config_there(const VerifyView&, Findings&);
void check_weights_there(const VerifyView&, Findings&);
void check_layers(const VerifyView&, Findings&);
void check_orphans(const VerifyView&, Findings&);

// verify_architecture.cc: what config.json says that the model has.
void check_architecture(const VerifyView&, Findings&);
void check_shapes(const VerifyView&, Findings&);
void check_unknown_tensors(const VerifyView&, Findings&);
// verify_quantized.cc: is it what config.json says that it is: quantized, or not?
void check_quantized(const VerifyView&, Findings&);
void check_transforms(const VerifyView&, Findings&);
// verify_values.cc: what is not quantized.
void check_values(const VerifyView&, Findings&);

// verify_method.cc: who reads what at all.
void check_method(const VerifyView&, Findings&);
void check_support(const VerifyView&, Findings&);
void check_scale_names(const VerifyView&, Findings&);
void check_file_metadata(const VerifyView&, Findings&);
// verify_groups.cc: how groups are named.
void check_groups(const VerifyView&, Findings&);
// verify_sidecar.cc: what says the same twice.
void check_side_file(const VerifyView&, Findings&);
void check_index(const VerifyView&, Findings&);
// verify_tensors.cc: types, shapes and numbers of one weight.
void check_code_types(const VerifyView&, Findings&);
void check_scale_types(const VerifyView&, Findings&);
void check_scale_shapes(const VerifyView&, Findings&);
void check_divisible(const VerifyView&, Findings&);
void check_tensor_parallel(const VerifyView&, Findings&);
void check_stacks(const VerifyView&, Findings&);
// verify_scales.cc: what the numbers of scales say.
void check_scale_numbers(const VerifyView&, Findings&);
void check_scale_bf16(const VerifyView&, Findings&);
void check_scale_powers(const VerifyView&, Findings&);
void check_fused_scales(const VerifyView&, Findings&);
// verify_magnitude.cc, verify_plausible.cc: what codes and scales are together.
[[nodiscard]] Reach reach_of(const VerifyView&, const VerifiedWeight&);
void check_reach(const VerifyView&, Findings&);
void check_plausible(const VerifyView&, Findings&);
void check_second_level(const VerifyView&, Findings&);
// verify_codes.cc: what codes say.
void check_codes(const VerifyView&, Findings&);
void check_zero_scales(const VerifyView&, Findings&);
// verify_modules.cc: which modules are quantized, and which alike.
void check_fused_schemes(const VerifyView&, Findings&);
void check_special_modules(const VerifyView&, Findings&);
// verify_ignore_list.cc: which are said not to be.
void check_skip_list(const VerifyView&, Findings&);
void check_skipped_but_quantized(const VerifyView&, Findings&);
// verify_declared.cc: what config.json says of weights and activations.
void check_said_scheme(const VerifyView&, Findings&);
void check_said_words(const VerifyView&, Findings&);
// verify_activations.cc: what is quantized while the model runs.
void check_activation_scales(const VerifyView&, Findings&);
// Static scales that have this fault: what the rules of scales' types, shapes and numbers say of
// them.
void check_static_scales(const VerifyView& view, StaticFault fault, Findings& out);

// Is a module meant by a target of a group: its class, its name, or an expression?
[[nodiscard]] bool is_target(std::string_view target, const std::string& module);
// The list of what is not quantized that counts: config.json's under any of its names, else the
// side file's.
[[nodiscard]] const Json& skip_list_of(const VerifyView& view);
// "1 scale", "2 scales".
[[nodiscard]] inline std::string counted(std::int64_t count, std::string_view what) {
  return std::to_string(count) + " " + std::string(what) + (count == 1 ? "" : "s");
}
// A number of a file; of a byte that is no F8_E4M3 the power of two that E8M0 has it for.
[[nodiscard]] float stored_number(const std::byte* bytes, safetensors::StoredType type);
// All scales of a weight as numbers (multipliers), without the second level.
[[nodiscard]] std::vector<float> scale_numbers(const VerifyView& view,
                                               const VerifiedWeight& weight);
// The second level as a multiplier; 1 where there is none.
[[nodiscard]] float second_level(const VerifyView& view, const VerifiedWeight& weight);

}  // namespace octavo
