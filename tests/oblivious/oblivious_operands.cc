// x86_operands.h beside objdump: oblivious_operands OBJDUMP FILE... disassembles object files and
// compares base, index and mask of every operand in memory. Exit 1 where one differs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "x86_operands.h"

namespace octavo::oblivious {
namespace {

// The number of a general register by its 64-bit or 32-bit name, without %; -1: none.
int number_of(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames{"ax", "cx", "dx", "bx", "sp", "bp", "si", "di"};
  if (name.size() < 2) return -1;
  const std::string_view rest = name.substr(1);
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if ((name[0] == 'r' || name[0] == 'e') && rest == kNames[i]) return static_cast<int>(i);
  if (name[0] != 'r' || rest[0] < '1' || rest[0] > '9') return -1;  // rip, riz
  return std::atoi(std::string(rest).c_str());
}

bool starts_with_any(std::string_view text, const std::vector<std::string_view>& words) {
  for (const std::string_view word : words)
    if (text.substr(0, word.size()) == word) return true;
  return false;
}

// The instruction's name, without prefixes.
std::string_view name_in(std::string_view text) {
  for (;;) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    const bool is_prefix =
        starts_with_any(word, {"rep", "lock", "bnd", "notrack", "data16", "addr32", "rex"}) ||
        word == "cs" || word == "ds" || word == "es" || word == "ss" || word == "fs" ||
        word == "gs";
    if (!is_prefix || end == text.size()) return word;
    text = text.substr(text.find_first_not_of(' ', end));
  }
}

// What objdump says: the registers in parentheses, base and index; two of string instructions.
X86Operand said(std::string_view text) {
  text = text.substr(0, text.find('#'));
  const std::string_view name = name_in(text);
  X86Operand operand;
  if (starts_with_any(name, {"lea", "nop", "endbr", "xlat"})) return operand;
  std::vector<std::string_view> registers;
  bool has_memory = false;
  for (std::size_t at = text.find('('); at != std::string_view::npos; at = text.find('(', at + 1)) {
    const std::size_t end = text.find(')', at);
    std::string_view inside = text.substr(at + 1, end - at - 1);
    if (inside.find('%') == std::string_view::npos) continue;  // %st(1)
    has_memory = true;
    while (!inside.empty()) {
      const std::size_t comma = std::min(inside.find(','), inside.size());
      registers.push_back(inside.substr(0, comma));
      inside.remove_prefix(std::min(comma + 1, inside.size()));
    }
  }
  const auto take = [&](std::size_t i) {
    if (i >= registers.size() || registers[i].size() < 2 || registers[i][0] != '%') return -1;
    const std::string_view one = registers[i].substr(1);
    if (starts_with_any(one, {"xmm", "ymm", "zmm"})) {
      operand.by_vector = true;
      return -1;
    }
    return number_of(one);
  };
  const bool only_stores = starts_with_any(name, {"stos", "scas"});
  operand.base = only_stores ? -1 : take(0);
  operand.index = take(only_stores ? 0 : 1);
  if (starts_with_any(name, {"cmps"})) std::swap(operand.base, operand.index);
  operand.by_vector |= starts_with_any(name, {"vmaskmov", "vpmaskmov"});
  const std::size_t mask = text.find("{%k");
  if (has_memory && mask != std::string_view::npos) operand.mask = text[mask + 3] - '0';
  return operand;
}

// "  12ab:\t62 f1 7c 48\tvmovups ...": false for other lines.
bool parsed(const std::string& line, std::vector<std::uint8_t>& bytes, std::string_view& text) {
  const std::size_t colon = line.find(":\t"), tab = line.find('\t', colon + 2);
  if (colon == std::string::npos || tab == std::string::npos) return false;
  bytes.clear();
  for (std::size_t at = colon + 2; at + 1 < tab && line[at] != ' '; at += 3)
    bytes.push_back(static_cast<std::uint8_t>(std::strtoul(&line[at], nullptr, 16)));
  bytes.resize(16);
  text = std::string_view(line).substr(tab + 1);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return !text.empty() && text.find("(bad)") == std::string_view::npos && text[0] != '.';
}

bool is_same(const X86Operand& a, const X86Operand& b) {
  const bool has_memory = a.base >= 0 || a.index >= 0 || a.by_vector;
  return a.base == b.base && a.index == b.index && a.by_vector == b.by_vector &&
         (!has_memory || a.mask == b.mask);
}

int compare(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> from(popen(command.c_str(), "r"), &pclose);
  if (from == nullptr) return 1;
  std::size_t with_memory = 0, wrong = 0, masked = 0;
  std::vector<std::uint8_t> bytes;
  std::string_view text;
  std::string line;
  for (std::array<char, 512> part{}; std::fgets(part.data(), part.size(), from.get()) != nullptr;) {
    line = part.data();
    if (!parsed(line, bytes, text)) continue;
    const X86Operand wanted = said(text), got = x86_operand(bytes.data());
    with_memory += wanted.base >= 0 ? 1 : 0;
    masked += wanted.mask > 0 ? 1 : 0;
    if (is_same(wanted, got)) continue;
    if (++wrong <= 20)
      std::printf("%sgot base %d, index %d, mask %d, vector %d; expected %d, %d, %d, %d\n",
                  line.c_str(), got.base, got.index, got.mask, got.by_vector, wanted.base,
                  wanted.index, wanted.mask, wanted.by_vector);
  }
  std::printf("%zu operands in memory, %zu with a mask, %zu wrong\n", with_memory, masked, wrong);
  return wrong > 0 || with_memory < 1000 ? 1 : 0;
}

}  // namespace
}  // namespace octavo::oblivious

int main(int count, char** words) {
  if (count < 3) {
    std::printf("usage: oblivious_operands OBJDUMP FILE...\n");
    return 2;
  }
  std::string command = std::string(words[1]) + " -d -w";
  for (int i = 2; i < count; ++i) command += std::string(" '") + words[i] + "'";
  return octavo::oblivious::compare(command);
}
