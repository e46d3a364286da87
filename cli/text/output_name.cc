#include "cli/text/output_name.h"

#include <filesystem>

#include "cli/usage.h"
#include "octavo/base/error.h"

namespace octavo::cli {

const std::string& output_name(const std::string& op, const std::string& path) {
  if (path == "-") {
    throw UsageError(text('[', op,
                          "] got '-' for the output, and files are not written to stdout; give a "
                          "name, or ./- if '-' is the name"));
  }
  return path;
}

void check_ending(std::string_view op, std::string_view option, const std::string& path,
                  std::string_view ending) {
  if (path.ends_with(ending)) return;
  const std::string fixed = std::filesystem::path(path).replace_extension(ending).string();
  throw UsageError(text('[', op, "] ", option, ": got '", shown(path),
                        "'; expected a name that ends ", "in ", ending, ", such as '", shown(fixed),
                        "'"));
}

}  // namespace octavo::cli
