#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "octavo/base/error.h"
#include "octavo/model/eval/calibration_files_internal.h"

namespace octavo::eval {
namespace {

constexpr const char* kOp = "calibrate";
constexpr std::string_view kBegin = "statistics-", kEnd = ".safetensors";

bool is_name(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(std::min(kEnd.size(), name.size()));
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string CalibrationFiles::path_of(std::int64_t layer) const {
  return text(folder_, '/', kBegin, layer, kEnd);
}

void CalibrationFiles::store(std::int64_t layer, const ModelStatistics& statistics) const {
  if (!folder_.empty()) write_statistics(path_of(layer), statistics);
}

ModelStatistics CalibrationFiles::load(std::int64_t layer, const StatisticsOrigin& origin) const {
  ModelStatistics out;
  std::string reason = "it is of another model";
  try {
    const StatisticsFile file(path_of(layer));
    if (file.origin().fingerprint == origin.fingerprint && file.origin().tokens == origin.tokens) {
      for (const std::string& module : file.modules()) out.modules.push_back(file.read(module));
      out.caches = file.caches();
      out.routings = file.routings();
      return out;
    }
  } catch (const Error& error) {
    reason = reason_of(error);
  }
  fail(ErrorCode::invalid_argument, kOp, "the state in '", shown(folder_, 400),
       "' is damaged or not whole: of layer ", layer, ", ", reason, "; remove '",
       shown(folder_, 400), "' to begin again, or name another folder (--resume)");
}

void CalibrationFiles::remove() const {
  if (folder_.empty()) return;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, failed))
    if (is_name(entry.path().filename().string())) std::filesystem::remove(entry.path(), failed);
}

}  // namespace octavo::eval
