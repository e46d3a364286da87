// Will servers load a checkpoint, and will they load what was meant? Rules that the loaders of
// vLLM, transformers, SGLang and TensorRT-LLM follow, held against names, types, shapes, scales and
// config.json, without running any of them. docs/numerics/dialects.md tells where the rules come
// from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo {

enum class Loader : std::uint8_t { vllm, transformers, sglang, trtllm };
[[nodiscard]] OCTAVO_API std::string_view name_of(Loader loader);
[[nodiscard]] OCTAVO_API Loader parse_loader(std::string_view name);  // Error lists the names
[[nodiscard]] OCTAVO_API std::vector<std::string> loader_names();

enum class Severity : std::uint8_t {
  error,    // it does not load, or loads as something else
  warning,  // it loads, and something is worse than it need be
};

struct Finding {
  Severity severity = Severity::error;
  std::string loader;   // "vllm"; "all" where no loader can read it
  std::string rule;     // "fused-scales": one of verify_rules()
  std::string tensor;   // or module; empty where it is the checkpoint's. Untrusted: shown() it
  std::string message;  // what was found, what is wanted, what helps
};

struct VerifyOptions {
  std::vector<Loader> loaders{Loader::vllm, Loader::transformers, Loader::sglang, Loader::trtllm};
  int tensor_parallel = 1;  // over how many devices servers split each matrix
  bool codes = true;        // read them all, for NaN; else config, headers and scales alone
};

// In the order of the rules, and of tensors within a rule; what is said twice comes once. A
// checkpoint that is not quantized is looked through for what is missing, for what its kind of
// model does not have, and for words that say it is quantized. Throws Error only for what keeps it
// from looking: options that cannot be, files that cannot be read.
[[nodiscard]] OCTAVO_API std::vector<Finding> verify(const CheckpointReader& checkpoint,
                                                     const VerifyOptions& options = {});

// How much of a checkpoint verify() looks at with these options: what stands behind "no findings".
struct VerifyScope {
  std::int64_t files = 0, tensors = 0;
  std::int64_t weights = 0;   // quantized ones among them, as recognize() has them
  std::int64_t rules = 0;     // that were asked of it
  std::uint64_t bytes = 0;    // of codes and values that were read
  std::string model_type{};   // by config.json; empty where it has none
  bool architecture = false;  // is it known which tensors that kind of model has?
};
[[nodiscard]] OCTAVO_API VerifyScope verify_scope(const CheckpointReader& checkpoint,
                                                  const VerifyOptions& options = {});

struct VerifyRule {
  std::string_view id, what;
};
[[nodiscard]] OCTAVO_API std::vector<VerifyRule> verify_rules();

}  // namespace octavo
