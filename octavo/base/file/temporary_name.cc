#include <unistd.h>

#include <array>
#include <cstdint>

#include "octavo/base/error.h"
#include "octavo/base/file/temporary_name_internal.h"
#include "octavo/base/hash/text_hash_internal.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/random_bits.h"

namespace octavo {
namespace {

constexpr std::string_view kEnd = ".octavo-tmp";

// What a temporary name begins with. Few characters of a long name, lest the temporary one be too
// long where the final one is not, and its hash instead of the rest.
std::string beginning(std::string_view name) {
  constexpr std::size_t kKept = 64;
  if (name.size() <= kKept) return text(".", name, ".");
  return text(".", name.substr(0, kKept), "~", hex_of(text_hash(name)), ".");
}

}  // namespace

std::string temporary_name(std::string_view name) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return text(beginning(name), hex_of(text_hash(host.data())).substr(8), "-", getpid(), "-",
              hex_of(random_bits()), kEnd);
}

bool is_temporary_name(std::string_view found) {
  return found.starts_with('.') && found.ends_with(kEnd);
}

bool is_temporary_name_of(std::string_view found, std::string_view name) {
  const std::string begin = beginning(name);
  if (found.size() <= begin.size() + kEnd.size() || !found.starts_with(begin) ||
      !found.ends_with(kEnd))
    return false;
  const std::string_view token =
      found.substr(begin.size(), found.size() - begin.size() - kEnd.size());
  return token.find('.') == std::string_view::npos;  // else it is of a longer name
}

}  // namespace octavo
