// inspect_checkpoint: lists the tensors of a checkpoint, with codes and scales of a weight as one
// entry, and optional statistics of their values. Used by the program's tables, its JSON and
// Python.
//   const Inspection seen = inspect_checkpoint("model/", {.statistics = true});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/pipeline/tensor_statistics.h"

namespace octavo {

struct InspectedTensor {
  std::string name;  // untrusted
  std::vector<std::int64_t> shape;
  std::string type;  // stored dtype, or the quantization: describe()
  std::uint64_t bytes = 0;
  bool quantized = false;
  std::vector<std::string> stored_as{};  // the tensors of the file that it is
  std::optional<TensorStatistics> statistics{};
};

struct Inspection {
  std::string path;
  std::int64_t files = 0, stored_tensors = 0;
  std::uint64_t bytes = 0;
  std::optional<Dialect> dialect{};      // where it is quantized
  std::int64_t weights = 0;              // quantized ones
  std::vector<InspectedTensor> tensors;  // in natural sort order of names
  // Why quantized weights could not be assembled (a faulty checkpoint can be inspected, too); then
  // all tensors are listed as stored. Empty where nothing is wrong.
  std::string problem{};
};

struct InspectOptions {
  bool statistics = false;  // reads all values
};
// The scale rule is shown only where the checkpoint's provenance records it: codes and scales do
// not reveal it. Throws Error where files cannot be read.
[[nodiscard]] OCTAVO_API Inspection inspect_checkpoint(const std::string& path,
                                                       const InspectOptions& options = {});
// As JSON text: what `octavo inspect --json` prints.
[[nodiscard]] OCTAVO_API std::string json_of(const Inspection& inspection);

}  // namespace octavo
