// Rule on the checksums that octavo writes into config.json, one for the data of each file: any
// byte that was changed since shows, where magnitudes show only what is far off.
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/verify_internal.h"
#include "octavo/safetensors/data_checksum.h"

namespace octavo {

// Files under other names were made since, and config.json says nothing of them. What was written
// just now (not every_byte) is not read again.
void look_at_sums(VerifyView& view) {
  if (!view.options.codes) return;
  const Json& sums = view.checkpoint.config()["octavo"]["sums"];
  bool all = !view.checkpoint.files().empty();
  for (const safetensors::FileReader& file : view.checkpoint.files()) {
    const std::string name = std::filesystem::path(file.path()).filename().string();
    const Json& sum = sums[name];
    all &= sum.is_string();
    if (!sum.is_null() && view.options.every_byte &&
        !safetensors::has_checksum(file, sum.string_or("")))
      view.changed.insert(name);
  }
  view.as_written = all && view.changed.empty();
}

void check_sums(const VerifyView& view, Findings& out) {
  for (const std::string& name : view.changed)
    out.error({kV, kH, kS, kT}, "",
              text("the data of '", shown(name, 160),
                   "' are not those that octavo wrote (config.json has their sum): scales, codes "
                   "or other numbers were changed or damaged since; make it again, or, if they "
                   "were changed on purpose, remove \"sums\" from \"octavo\" in config.json"));
}

}  // namespace octavo
