// Statistics of a model's activations: amax and E[x^2] of every Linear's input, blocks of Hessians,
// the range of keys and values, tokens per expert. calibrate.h makes them; this reads the file that
// has them, checks that it is the model's, and reads llama.cpp's imatrix files into the same
// structure. docs/numerics/statistics.md describes the file.
//   const StatisticsFile statistics("stats.safetensors");
//   statistics.check_model(files.path(), files.fingerprint());
//   const ModuleStatistics of_input = statistics.read("model.layers.0.mlp.down_proj");
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"

namespace octavo {

// Of the input of one Linear, K wide. An expert's has the tokens that were routed to it alone.
struct ModuleStatistics {
  std::string module{};              // its name in the checkpoint, "model.layers.0.mlp.down_proj"
  std::int64_t rows = 0;             // tokens it has seen
  std::vector<float> amax{};         // [K]; empty in what imatrix files give
  std::vector<float> mean_square{};  // [K], E[x^2]
  // E[x x^T] of 16 neighbouring channels, [ceil(K / 16), 16, 16]; channels beyond K are zero.
  std::vector<float> block_hessians{};
  std::vector<float> hessian{};  // [K, K]; empty where it was not asked for
};
inline constexpr std::int64_t kHessianBlock = 16;

// Keys and values as they enter the cache, per head: [kv_heads].
struct CacheStatistics {
  std::string module{};  // of the attention, "model.layers.0.self_attn"
  std::vector<float> k_amax{}, v_amax{};
};

struct RoutingStatistics {
  std::string module{};                // of the router
  std::vector<std::int64_t> tokens{};  // by expert
};

// What a file says of itself.
struct StatisticsOrigin {
  std::string model{};            // path at the time
  std::uint64_t fingerprint = 0;  // ModelFiles::fingerprint; 0: not known
  std::int64_t tokens = 0;
  std::vector<std::string> texts{};  // name and hash of each
  std::string made_by{};             // "octavo 0.1.0", "llama.cpp imatrix"
};

// All of it in memory: what calibrate() returns and write_statistics() takes.
struct ModelStatistics {
  StatisticsOrigin origin{};
  std::vector<ModuleStatistics> modules{};
  std::vector<CacheStatistics> caches{};
  std::vector<RoutingStatistics> routings{};
  std::vector<std::string> notes{};  // experts that no token reached, by name
};

// Written whole or not at all.
OCTAVO_API void write_statistics(const std::string& path, const ModelStatistics& statistics);

class OCTAVO_API StatisticsFile {
 public:
  // A file of write_statistics, or an imatrix file of llama.cpp, in either of its formats. Throws
  // Error(io) where it cannot be read, Error(invalid_argument) where it is neither or is damaged.
  explicit StatisticsFile(const std::string& path);
  ~StatisticsFile();
  StatisticsFile(StatisticsFile&&) noexcept;
  StatisticsFile& operator=(StatisticsFile&&) noexcept;

  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] const StatisticsOrigin& origin() const;
  // Names of all modules, sorted; K of one, or -1 where it is not there.
  [[nodiscard]] std::vector<std::string> modules() const;
  [[nodiscard]] std::int64_t width(std::string_view module) const;
  // Parts of one: tokens it has seen, its largest inputs (empty in what imatrix files give),
  // E[x^2].
  [[nodiscard]] std::int64_t rows(std::string_view module) const;
  [[nodiscard]] std::vector<float> amax(std::string_view module) const;
  [[nodiscard]] std::vector<float> mean_square(std::string_view module) const;
  // Reads one module's tensors. Throws Error(invalid_argument) that names it where there is none.
  [[nodiscard]] ModuleStatistics read(std::string_view module) const;
  [[nodiscard]] std::vector<CacheStatistics> caches() const;
  [[nodiscard]] std::vector<RoutingStatistics> routings() const;
  // Of an imatrix file: tensors without a name in the model.
  [[nodiscard]] const std::vector<std::string>& notes() const;

  // Throws Error(invalid_argument) that names both models where the file is of another one. A file
  // that knows no fingerprint (imatrix, another tool's) passes: its widths are checked by use.
  void check_model(std::string_view model, std::uint64_t fingerprint) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace octavo
