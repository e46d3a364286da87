// verify(): will vLLM, transformers, SGLang, TensorRT-LLM, ComfyUI or octavo itself load a
// checkpoint, and load it correctly? Checks the loaders' rules on names, types, shapes, scales and
// config.json without running any loader. docs/numerics/dialects.md has the sources of the rules.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo {

enum class Loader : std::uint8_t { vllm, transformers, sglang, trtllm, comfyui, octavo };
[[nodiscard]] OCTAVO_API std::string_view name_of(Loader loader);
[[nodiscard]] OCTAVO_API Loader parse_loader(std::string_view name);  // Error lists the names
[[nodiscard]] OCTAVO_API std::vector<std::string> loader_names();

enum class Severity : std::uint8_t {
  error,    // it fails to load, or silently loads wrong weights
  warning,  // it loads, with a loss of quality or speed
};

struct Finding {
  Severity severity = Severity::error;
  std::string loader;   // "vllm"; "all" where no loader can read it
  std::string rule;     // "fused-scales": one of verify_rules()
  std::string tensor;   // or module; empty: the whole checkpoint. Untrusted: print by shown()
  std::string message;  // got, expected, fix
  bool silent = false;  // of an error: it loads all the same, as something else, and says nothing
};

struct VerifyOptions {
  // Empty: the four that serve models, and comfyui or octavo where the checkpoint is in its
  // dialect. Then one that loads is enough, if none loads it wrong and says nothing; of loaders
  // that are named here all have to load it.
  std::vector<Loader> loaders{};
  int tensor_parallel = 1;  // tensor-parallel size: devices that split each matrix
  bool codes = true;  // read all codes and check for NaN; else config, headers and scales only
  // With codes: false reads a sample of them, for their magnitudes, and leaves out what needs every
  // byte (NaN, the sums that octavo wrote). For a checkpoint that was written just now.
  bool every_byte = true;
};

// Findings in rule order, then tensor order, without duplicates. An unquantized checkpoint is
// checked for missing and unknown tensors and for a config that declares quantization. Throws Error
// only where checking is impossible: invalid options, unreadable files.
[[nodiscard]] OCTAVO_API std::vector<Finding> verify(const CheckpointReader& checkpoint,
                                                     const VerifyOptions& options = {});

// What verify() covers with these options: the evidence behind "no findings".
struct VerifyScope {
  std::int64_t files = 0, tensors = 0;
  std::int64_t weights = 0;   // quantized weights, as counted by recognize()
  std::int64_t rules = 0;     // applied to it
  std::uint64_t bytes = 0;    // codes and values read
  std::string model_type{};   // of config.json; empty where it has none
  bool architecture = false;  // are the tensors of this model type known?
};
[[nodiscard]] OCTAVO_API VerifyScope verify_scope(const CheckpointReader& checkpoint,
                                                  const VerifyOptions& options = {});

struct VerifyRule {
  std::string_view id, what;
};
[[nodiscard]] OCTAVO_API std::vector<VerifyRule> verify_rules();

}  // namespace octavo
