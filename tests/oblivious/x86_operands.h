// Which registers an x86-64 instruction makes addresses of: the base and the index of its operand
// in memory (Intel SDM 2.1.5, 2.3.5 and 2.7). Displacements are the instruction's own, so equal
// registers mean equal addresses. Only as much of decoding as that asks for: no lengths.
#pragma once

#include <cstdint>

namespace octavo::oblivious {

struct X86Operand {
  static constexpr int kNone = -1;
  int base = kNone, index = kNone;  // numbers of general registers: rax, rcx, rdx, rbx, rsp, ...
  int mask = 0;                     // the mask register (EVEX), if it is not k0
  bool by_vector = false;  // gather, scatter, vmaskmov: a vector register says what is accessed
};

namespace x86_detail {

// Of one-byte opcodes: is there a ModRM byte?
constexpr bool has_modrm(std::uint8_t op) {
  if (op < 0x40) return (op & 7) < 4;
  switch (op & 0xF0) {
    case 0x80:
      return true;
    case 0xC0:
      return op == 0xC0 || op == 0xC1 || op == 0xC6 || op == 0xC7;
    case 0xD0:
      return (op & 0xF) < 4 || (op & 0xF) > 7;
    case 0xF0:
      return op == 0xF6 || op == 0xF7 || op == 0xFE || op == 0xFF;
    default:
      return op == 0x63 || op == 0x69 || op == 0x6B;
  }
}

// Of opcodes after 0F.
constexpr bool has_modrm_0f(std::uint8_t op) {
  if ((op & 0xF0) == 0x80 || (op & 0xF8) == 0xC8) return false;  // jcc, bswap
  switch (op) {
    case 0x05:
    case 0x06:
    case 0x08:
    case 0x09:
    case 0x0B:
    case 0x0E:
    case 0x31:  // rdtsc
    case 0x77:
    case 0xA0:
    case 0xA1:
    case 0xA2:  // cpuid
    case 0xA8:
    case 0xA9:
    case 0xAA:
      return false;
    default:
      return true;
  }
}

}  // namespace x86_detail

// No base and no index: nothing in memory, or an address that is the instruction's own. The stack
// of push, pop, call and ret follows from the instructions before.
inline X86Operand x86_operand(const std::uint8_t* at) {
  using namespace x86_detail;
  constexpr int kRsi = 6, kRdi = 7;
  X86Operand found;
  int base_bit = 0, index_bit = 0;  // REX.B and X
  for (;; ++at) {                   // operand size, address size, lock, repeat, segments
    const std::uint8_t byte = *at;
    const bool is_prefix = byte == 0x66 || byte == 0x67 || byte == 0xF0 || byte == 0xF2 ||
                           byte == 0xF3 || byte == 0x2E || byte == 0x36 || byte == 0x3E ||
                           byte == 0x26 || byte == 0x64 || byte == 0x65;
    if (!is_prefix) break;
  }
  if ((*at & 0xF0) == 0x40) {  // REX
    base_bit = *at & 1;
    index_bit = *at >> 1 & 1;
    ++at;
  }
  int map = 0;  // 1: 0F, 2: 0F 38, 3: 0F 3A
  bool is_vector = false, is_evex = false;
  std::uint8_t op = *at++;
  if (op == 0xC5) {
    map = 1;
    is_vector = true;
    ++at;
    op = *at++;
  } else if (op == 0xC4 || op == 0x62) {
    is_evex = op == 0x62;
    map = *at & (is_evex ? 7 : 31);
    index_bit = ~*at >> 6 & 1;
    base_bit = ~*at >> 5 & 1;
    if (is_evex) found.mask = at[2] & 7;
    at += is_evex ? 3 : 2;
    op = *at++;
    is_vector = true;
  } else if (op == 0x0F) {
    map = 1;
    op = *at++;
    if (op == 0x38 || op == 0x3A) {
      map = op == 0x38 ? 2 : 3;
      op = *at++;
    }
  }
  if (map == 0) {
    const bool loads =
                   op == 0xA4 || op == 0xA5 || op == 0xA6 || op == 0xA7 || op == 0xAC || op == 0xAD,
               is_string = loads || op == 0xAA || op == 0xAB || op == 0xAE || op == 0xAF;
    if (is_string) {
      found.base = loads ? kRsi : X86Operand::kNone;
      found.index = op == 0xAC || op == 0xAD ? X86Operand::kNone : kRdi;
      return found;
    }
    constexpr std::uint8_t kLea = 0x8D;  // which accesses nothing
    if (!has_modrm(op) || op == kLea) return {};
  } else if (map == 1) {
    // Hints and long no-ops (1E, 1F) have operands that they do not access.
    if (!has_modrm_0f(op) || (!is_vector && (op == 0x1E || op == 0x1F))) return {};
  }
  const std::uint8_t modrm = *at++;
  const int mod = modrm >> 6, rm = modrm & 7;
  if (mod == 3) return {};
  if (is_vector && map == 2 && found.mask == 0)
    found.by_vector = (op >= 0x2C && op <= 0x2F && !is_evex) || op == 0x8C || op == 0x8E;
  if (rm != 4) {
    if (mod == 0 && rm == 5) return {};  // relative to the instruction
    found.base = rm | base_bit << 3;
    return found;
  }
  const std::uint8_t sib = *at;
  const int base = sib & 7, index = (sib >> 3 & 7) | index_bit << 3;
  if (mod != 0 || base != 5) found.base = base | base_bit << 3;
  constexpr int kNoIndex = 4;
  if (index != kNoIndex) found.index = index;
  if (is_vector && map == 2) {
    const bool gathers = op >= 0x90 && op <= 0x93,
               scatters = is_evex && ((op >= 0xA0 && op <= 0xA3) || op == 0xC6 || op == 0xC7);
    if (gathers || scatters) {
      found.by_vector = true;
      found.index = X86Operand::kNone;
    }
  }
  return found;
}

}  // namespace octavo::oblivious
