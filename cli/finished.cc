#include "cli/finished.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/terminal.h"
#include "octavo/base/error.h"
#include "octavo/base/json.h"
#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo::cli {

bool is_finished(const std::string& folder,
                 const std::vector<std::pair<std::string_view, std::string>>& said) {
  constexpr std::uint64_t kMostBytes = 8U << 20;
  const std::filesystem::path config = std::filesystem::path(folder) / "config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(config, ignored) ||
      std::filesystem::exists(std::filesystem::path(folder) / "octavo-progress.json", ignored))
    return false;
  try {
    const Json written =
        parse_json(read_small_file(config.string(), kMostBytes), "config.json")["octavo"];
    if (!written.is_object()) return false;
    for (const auto& [key, value] : said)
      if (written[key].string_or("") != value) return false;
    return true;
  } catch (const Error&) {
    return false;
  }
}

void say_finished(std::string_view op, const std::string& folder) {
  say(fmt::format("octavo: [{}] {} is complete; there is nothing to resume", op,
                  octavo::shown(folder, 400)));
}

}  // namespace octavo::cli
