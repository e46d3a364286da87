#include "octavo/model/tokenizer/unicode_internal.h"

#include <algorithm>
#include <bitset>

#include "octavo/base/json/json_text_internal.h"
#include "octavo/model/tokenizer/unicode_tables_internal.h"

namespace octavo::tokenizer {
namespace {

constexpr std::size_t kBlock = 256, kBlocks = 0x110000 / kBlock;

// Blocks with a stand-in: most characters need no more than this.
const std::bitset<kBlocks>& blocks_with_stand_ins() {
  static const std::bitset<kBlocks> blocks = [] {
    std::bitset<kBlocks> out;
    for (const StandIn& one : stand_ins())
      for (std::size_t block = one.first / kBlock; block <= one.last / kBlock; ++block)
        out.set(block);
    return out;
  }();
  return blocks;
}

std::uint32_t look_up(std::uint32_t point) {
  const auto all = stand_ins();
  const auto at = std::partition_point(all.begin(), all.end(),
                                       [&](const StandIn& one) { return one.last < point; });
  return at != all.end() && point >= at->first ? at->stand_in : point;
}

}  // namespace

std::uint32_t stand_in_of(std::uint32_t point) {
  return blocks_with_stand_ins()[point / kBlock] ? look_up(point) : point;
}

std::string_view with_stand_ins(std::string_view text, std::string& storage) {
  const std::bitset<kBlocks>& blocks = blocks_with_stand_ins();
  bool changed = false;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    const std::uint32_t point = next_point(text, at);
    if (!blocks[point / kBlock]) continue;
    const std::uint32_t stand_in = look_up(point);
    if (stand_in == point) continue;
    if (!changed) storage.assign(text);
    changed = true;
    std::string bytes;
    append_utf8(bytes, stand_in);
    std::copy(bytes.begin(), bytes.end(), storage.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return changed ? std::string_view(storage) : text;
}

}  // namespace octavo::tokenizer
