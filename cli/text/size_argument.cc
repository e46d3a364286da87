#include "cli/text/size_argument.h"

#include <charconv>
#include <cmath>

#include "cli/text/suggest.h"
#include "cli/usage.h"
#include "octavo/base/error.h"

namespace octavo::cli {

std::uint64_t size_argument(std::string_view where, const std::string& typed) {
  const auto refuse = [&]() -> std::uint64_t {
    throw UsageError(
        text(where, " got '", cli::shown(typed), "'; expected a size such as 256M or 5GiB"));
  };
  double number = 0;
  const char* end = typed.data() + typed.size();
  const auto [unit, error] = std::from_chars(typed.data(), end, number);
  if (error != std::errc{} || !(number >= 0)) return refuse();
  std::string_view rest(unit, static_cast<std::size_t>(end - unit));
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  int power = 0;
  if (!rest.empty() && rest != "B") {
    const std::size_t at = std::string_view("KMGT").find(
        static_cast<char>(rest[0] >= 'a' ? rest[0] - 'a' + 'A' : rest[0]));
    const std::string_view after = rest.substr(1);
    if (at == std::string_view::npos || !(after.empty() || after == "B" || after == "iB"))
      return refuse();
    power = 10 * (static_cast<int>(at) + 1);
  }
  const double bytes = std::ldexp(number, power);
  if (!(bytes < 0x1p62)) return refuse();
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t memory_argument(std::string_view where, const std::string& typed) {
  constexpr std::uint64_t kLeast = 16ULL << 20;  // QuantizeCheckpointOptions::max_memory
  const std::uint64_t bytes = size_argument(where, typed);
  if (bytes < kLeast)
    throw UsageError(text(where, " got '", cli::shown(typed), "'; expected at least 16M"));
  return bytes;
}

}  // namespace octavo::cli
