#include "cli/checkpoint/name_column.h"

#include <algorithm>

#include "cli/terminal/terminal.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

// In a file; a column that follows the longest name would let one hostile name fill a disk.
constexpr std::size_t kMaxInFiles = 120;

std::string whole(std::string_view name) { return octavo::shown(name, name.size()); }

}  // namespace

NameColumn::NameColumn(std::size_t least, std::size_t beside)
    : width_(least), most_(kMaxInFiles), wraps_(is_terminal(stdout)) {
  if (!wraps_) return;
  const std::size_t columns = columns_of(stdout);
  most_ = std::max(least, columns > beside ? columns - beside : 0);
}

void NameColumn::fit(std::string_view name) {
  width_ = std::max(width_, std::min(name.size(), most_));
}

std::string NameColumn::row(std::string_view before, std::string_view name,
                            std::string_view after) const {
  std::string line = std::string(before) + whole(name);
  if (name.size() <= width_) {
    line.append(width_ - name.size(), ' ');
  } else if (wraps_) {
    line += '\n' + std::string(before.size() + width_, ' ');
  }
  return line.append(after);
}

}  // namespace octavo::cli
