// The data-oblivious check on the CPU itself, for instructions that valgrind cannot run
// (half-precision vectors, AVX-512, AMX): compute different data at the same addresses,
// single-stepped, and the instructions and the addresses they access must be the same.
//
//   oblivious_trace casts|quantizing|products|operations|attention [TEXT of cases]
//
// A child for each input computes and a parent steps it (ptrace). SIGUSR1 and SIGUSR2 from the
// child mark the start and the end of what is compared. Of an address the registers it is made of
// are compared, on x86 mask registers, too; an index that is a vector is refused. Stepping is slow,
// so this checks the backend that this machine chooses and not every policy; prints a verdict for
// each case; exit 1 when something differs, 77 where there is no ptrace.
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#if defined(__aarch64__)
#include <asm/ptrace.h>
#else
#include <cpuid.h>

#include "x86_operands.h"
#endif

#include "octavo/backend/registry.h"
#include "octavo/base/philox.h"
#include "trace_cases.h"

namespace octavo::oblivious {
namespace {

constexpr int kSkipped = 77;
constexpr std::size_t kMaxWords = 1u << 23;

// ---- Each case runs once for each of these inputs: any bits, zeros, NaN, and small numbers.
constexpr int kInputs = 4;
void fill(std::vector<std::uint8_t>& bytes, int input) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto random = static_cast<std::uint8_t>(philox4x32(3, i)[0]);
    const std::uint8_t kinds[kInputs] = {random, 0x00, 0xFF, 0x3D};
    bytes[i] = kinds[input];
  }
}

[[noreturn]] void run_child(const TraceCase& one, TraceBuffers& buffers, int input) {
  fill(buffers.input, input);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kSkipped);
  raise(SIGSTOP);
  raise(SIGUSR1);
  one.run();
  raise(SIGUSR2);
  _exit(0);
}

// A child for each input, of the same memory: what they allocate is at the same addresses.
std::array<pid_t, kInputs> children(const TraceCase& one, TraceBuffers& buffers) {
  for (int i = 0; i < 3; ++i) one.run();  // what happens the first times only
  std::array<pid_t, kInputs> all{};
  for (int input = 0; input < kInputs; ++input) {
    const pid_t child = fork();
    if (child == 0) run_child(one, buffers, input);
    all[static_cast<std::size_t>(input)] = child;
  }
  return all;
}

// ---- What the parent sees.
using Words = std::vector<std::uint64_t>;  // the address of every instruction, and what it accesses

struct Trace {
  Words words{};
  std::vector<std::size_t> steps{};  // where in `words` an instruction's own begin
  bool has_vector_index = false;
  std::uint64_t vector_index_at = 0;
};

// Of instructions by their address: on x86 what they access, on ARM the instruction itself.
#if defined(__aarch64__)
using Operands = std::unordered_map<std::uint64_t, std::uint32_t>;
#else
using Operands = std::unordered_map<std::uint64_t, X86Operand>;
#endif

class Stepper {
 public:
  Stepper(pid_t child, Operands& operands) : child_(child), operands_(operands) {}

  // The signal at which the child stops next; 0 when it has ended instead.
  int wait_for_stop() {
    int status = 0;
    return waitpid(child_, &status, 0) == child_ && WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
  }

  // From SIGUSR1 to SIGUSR2; false when the child does something else.
  bool record(Trace& trace) {
    trace.words.clear();
    trace.steps.clear();
    trace.has_vector_index = false;
    if (go(PTRACE_CONT) != SIGUSR1) return false;
    while (trace.words.size() < kMaxWords) {
      const int signal_number = go(PTRACE_SINGLESTEP);
      if (signal_number != SIGTRAP) return signal_number == SIGUSR2;
      trace.steps.push_back(trace.words.size());
      append_state(trace);
    }
    return false;
  }

 private:
  int go(decltype(PTRACE_CONT) request) {
    return ptrace(request, child_, nullptr, nullptr) == 0 ? wait_for_stop() : 0;
  }

#if defined(__aarch64__)
  void append_state(Trace& trace) {
    user_pt_regs registers{};
    iovec where{&registers, sizeof(registers)};
    ptrace(PTRACE_GETREGSET, child_, NT_PRSTATUS, &where);
    trace.words.push_back(registers.pc);
    const std::uint32_t word = instruction(registers.pc);
    // Loads and stores (Arm ARM C4.1): the base register, and the index where there is one.
    constexpr std::uint32_t kLoadStoreMask = 0x0A000000, kLoadStore = 0x08000000;
    constexpr std::uint32_t kIndexedMask = 0x3B200C00, kIndexed = 0x38200800;
    if ((word & kLoadStoreMask) != kLoadStore) return;
    const std::uint32_t base = word >> 5 & 31, index = word >> 16 & 31;
    trace.words.push_back(base == 31 ? registers.sp : registers.regs[base]);
    if ((word & kIndexedMask) == kIndexed && index != 31)
      trace.words.push_back(registers.regs[index]);
  }
  std::uint32_t instruction(std::uint64_t pc) {
    const auto [found, is_new] = operands_.try_emplace(pc, 0);
    if (is_new) {
      found->second = static_cast<std::uint32_t>(
          ptrace(PTRACE_PEEKTEXT, child_, reinterpret_cast<void*>(pc), nullptr));
    }
    return found->second;
  }
#else
  void append_state(Trace& trace) {
    user_regs_struct now{};
    ptrace(PTRACE_GETREGS, child_, nullptr, &now);
    trace.words.push_back(now.rip);
    const auto [found, is_new] = operands_.try_emplace(now.rip);
    X86Operand& operand = found->second;
    if (is_new) operand = operand_at(now.rip);
    const std::uint64_t registers[16] = {now.rax, now.rcx, now.rdx, now.rbx, now.rsp, now.rbp,
                                         now.rsi, now.rdi, now.r8,  now.r9,  now.r10, now.r11,
                                         now.r12, now.r13, now.r14, now.r15};
    if (operand.base >= 0) trace.words.push_back(registers[operand.base]);
    if (operand.index >= 0) trace.words.push_back(registers[operand.index]);
    // What a compiler has spilled to the frame and blends under a mask is in a line that it holds.
    constexpr std::uint64_t kFrame = 1u << 16;
    const bool is_spilled =
        operand.base >= 0 && operand.index < 0 && registers[operand.base] - now.rsp < kFrame;
    if (operand.mask > 0 && !is_spilled) trace.words.push_back(mask_register(operand.mask));
    if (operand.by_vector && !trace.has_vector_index) {
      trace.has_vector_index = true;
      trace.vector_index_at = now.rip;
    }
  }
  X86Operand operand_at(std::uint64_t pc) {
    std::array<std::uint64_t, 2> bytes{};  // an instruction has 15 at most
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::uint64_t>(
          ptrace(PTRACE_PEEKTEXT, child_, reinterpret_cast<void*>(pc + 8 * i), nullptr));
    return x86_operand(reinterpret_cast<const std::uint8_t*>(bytes.data()));
  }
  // Where XSAVE keeps the mask registers, CPUID says.
  std::uint64_t mask_register(int number) {
    static const std::uint32_t kOffset = [] {
      constexpr unsigned kXsaveLeaf = 0xD, kMasks = 5;
      unsigned size = 0, offset = 0, ecx = 0, edx = 0;
      return __get_cpuid_count(kXsaveLeaf, kMasks, &size, &offset, &ecx, &edx) != 0 ? offset : 0;
    }();
    alignas(64) static std::array<std::byte, 16384> area;
    iovec where{area.data(), area.size()};
    if (kOffset == 0 || ptrace(PTRACE_GETREGSET, child_, NT_X86_XSTATE, &where) != 0) return 0;
    std::uint64_t mask = 0;
    std::memcpy(&mask, area.data() + kOffset + 8 * static_cast<std::size_t>(number), sizeof mask);
    return mask;
  }
#endif

  pid_t child_;
  Operands& operands_;
};

// Where this program is in memory, so that an address can be found in its disassembly.
std::uint64_t image_begin() {
  std::uint64_t begin = 0;
  std::ifstream("/proc/self/maps") >> std::hex >> begin;
  return begin;
}

unsigned long long in_image(std::uint64_t address) { return address - image_begin(); }

// The last instruction that has words before this one.
std::uint64_t instruction_before(const Trace& trace, std::ptrdiff_t word) {
  const auto after = std::ranges::lower_bound(trace.steps, static_cast<std::size_t>(word));
  return after == trace.steps.begin() ? 0 : trace.words[*(after - 1)];
}

// Says where the first of the traces that differ parts from the first of all.
struct Verdict {
  int differing = 0;
  std::string where{};
};

enum class Outcome : std::uint8_t { traced, skipped, failed };

Outcome record(pid_t child, Trace& trace, Operands& operands) {
  if (child < 0) return Outcome::failed;
  Stepper stepper(child, operands);
  const bool is_there = stepper.wait_for_stop() == SIGSTOP;
  const bool is_good = is_there && stepper.record(trace);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return is_good ? Outcome::traced : is_there ? Outcome::failed : Outcome::skipped;
}

Outcome judge(const std::array<pid_t, kInputs>& all, Operands& operands, Verdict& verdict,
              std::size_t& words) {
  Trace first, other;
  Outcome outcome = Outcome::traced;
  for (std::size_t input = 0; input < kInputs; ++input) {
    Trace& trace = input == 0 ? first : other;
    const Outcome found = record(all[input], trace, operands);  // also ends the child
    if (outcome == Outcome::traced) outcome = found;
    if (outcome != Outcome::traced) continue;
    words += trace.words.size();
    if (input == 0 && !trace.has_vector_index) continue;
    const auto at = std::ranges::mismatch(first.words, trace.words);
    if (!trace.has_vector_index && at.in1 == first.words.end() && at.in2 == trace.words.end())
      continue;
    ++verdict.differing;
    char line[96] = "";
    if (trace.has_vector_index)
      std::snprintf(line, sizeof line, "a vector register makes an address at %#llx",
                    in_image(trace.vector_index_at));
    else
      std::snprintf(line, sizeof line, "traces part at the instruction %#llx",
                    in_image(instruction_before(first, at.in1 - first.words.begin())));
    if (verdict.where.empty()) verdict.where = line;
  }
  return outcome;
}

int run(const char* backend, const std::vector<TraceCase>& cases, TraceBuffers& buffers) {
  Operands operands;
  int wrong = 0;
  for (const TraceCase& one : cases) {
    Verdict verdict;
    std::size_t words = 0;
    const Outcome outcome = judge(children(one, buffers), operands, verdict, words);
    if (outcome == Outcome::skipped) return kSkipped;
    if (outcome == Outcome::failed) {
      std::printf("%s: %s: could not be traced\n", backend, one.name.c_str());
      return 1;
    }
    const bool is_right = (verdict.differing == 0) == one.oblivious;
    wrong += is_right ? 0 : 1;
    std::printf("%s: %-52s %s%s%s, %zu words\n", backend, one.name.c_str(),
                verdict.differing == 0 ? "oblivious" : "differs",
                is_right ? "" : " WRONG: ", is_right ? "" : verdict.where.c_str(), words / kInputs);
    std::fflush(stdout);
  }
  std::printf("%zu cases, %d wrong\n", cases.size(), wrong);
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace octavo::oblivious

int main(int argc, char** argv) {
  using namespace octavo::oblivious;
  constexpr std::pair<std::string_view, void (TraceCases::*)()> kModes[] = {
      {"casts", &TraceCases::add_casts},
      {"quantizing", &TraceCases::add_quantizing},
      {"products", &TraceCases::add_products},
      {"operations", &TraceCases::add_operations},
      {"attention", &TraceCases::add_attention}};
  const std::string_view mode = argc == 2 || argc == 3 ? argv[1] : "";
  const auto* const known =
      std::ranges::find(kModes, mode, &std::pair<std::string_view, void (TraceCases::*)()>::first);
  if (known == std::end(kModes)) {
    std::printf("expected one of: casts, quantizing, products, operations, attention\n");
    return 2;
  }
  static TraceBuffers buffers;
  const octavo::Kernels& kernels = octavo::cpu_backend();
  TraceCases cases(buffers, kernels);
  cases.add_controls();
  if (&kernels != &octavo::reference_backend()) (cases.*known->second)();
  constexpr std::string_view kEvery = "every:";
  const std::string_view some = argc == 3 ? argv[2] : "";
  if (some.starts_with(kEvery))
    cases.keep_every(static_cast<std::size_t>(std::max(1, std::atoi(argv[2] + kEvery.size()))));
  else if (!some.empty())
    cases.keep(some);
  std::fflush(stdout);  // children would write what is buffered again
  const int result = run(kernels.name, cases.all(), buffers);
  if (result == kSkipped) std::printf("skipped: ptrace is not allowed here\n");
  return result;
}
