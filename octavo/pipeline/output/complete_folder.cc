#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/checkpoint/small_file_internal.h"
#include "octavo/pipeline/output/complete_folder_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"

namespace octavo {

Json finished_provenance(const std::string& folder) {
  constexpr std::uint64_t kMaxConfigBytes = 64U << 20;
  const std::filesystem::path config = std::filesystem::path(folder) / "config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(config, ignored) ||
      std::filesystem::exists(std::filesystem::path(folder) / kProgressFile, ignored))
    return {};
  try {
    // A model of another program has a config.json, too.
    Json provenance =
        parse_json(read_small_file(config.string(), kMaxConfigBytes), "config.json")["octavo"];
    return provenance.is_object() ? provenance : Json();
  } catch (const Error&) {
    return {};
  }
}

bool is_complete(const std::string& folder) { return finished_provenance(folder).is_object(); }

}  // namespace octavo
