// The data-oblivious check on the CPU itself, for instructions that valgrind cannot run
// (half-precision vectors and newer): convert different data at the same addresses, single-stepped,
// and the instructions and the addresses they access must be the same.
//
// A child converts and a parent steps it (ptrace). SIGUSR1 and SIGUSR2 from the child mark the
// start and the end of what is compared. Addresses are seen on aarch64 only, instructions
// everywhere. Stepping is slow, so this checks the backend that this machine chooses and not every
// policy; exit 1 when something differs, 77 where there is no ptrace.
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#if defined(__aarch64__)
#include <asm/ptrace.h>
#endif

#include "oblivious_control.h"
#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/base/philox.h"
#include "octavo/convert/convert.h"
#include "octavo/format/parse_format.h"
#include "octavo/ops/attention/attention.h"
#include "octavo/quant/quantize.h"
#include "octavo/round/policy_names.h"
#include "operands.h"
#include "quantize_job.h"

namespace octavo::oblivious {
namespace {

constexpr int kSkipped = 77;
constexpr std::size_t kMaxSteps = 1u << 20;
constexpr std::int64_t kCount = 75;  // a whole run of the widest loop (64), and a tail

// ---- What is converted: each case runs once for each of these inputs.
constexpr int kInputs = 3;
void fill(std::vector<std::uint8_t>& bytes, int input) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto random = static_cast<std::uint8_t>(philox4x32(3, i)[0]);
    const std::uint8_t kinds[kInputs] = {random, 0x00, 0xFF};  // any values, zeros, NaN
    bytes[i] = kinds[input];
  }
}

struct Case {
  std::string name;
  bool oblivious;  // false: a control, which must be seen to differ
  std::function<void()> run;
};

struct Buffers {
  alignas(64) std::vector<std::uint8_t> input = std::vector<std::uint8_t>(kCount * 8);
  std::vector<std::uint8_t> output = std::vector<std::uint8_t>(kCount * 8);
};

void add_controls(std::vector<Case>& cases, Buffers& buffers) {
  using Function = void (*)(std::span<const std::uint32_t>, std::uint8_t*);
  const auto add = [&](const char* name, Function function, bool oblivious) {
    cases.push_back({name, oblivious, [function, &buffers] {
                       const auto* words =
                           reinterpret_cast<const std::uint32_t*>(buffers.input.data());
                       function({words, static_cast<std::size_t>(kCount)}, buffers.output.data());
                     }});
  };
  add("control branch_on_value", &branch_on_value, false);
  add("control stop_at_value", &stop_at_value, false);
#if defined(__aarch64__)
  add("control look_up_value", &look_up_value, false);
#endif
  add("control select_by_mask", &select_by_mask, true);
}

void add_conversions(std::vector<Case>& cases, Buffers& buffers, const Kernels& kernels) {
  const DType dtypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
  for (const char* format_name : {"e4m3fn", "e5m2", "e2m1fn", "e8m0fnu", "e5m10"}) {
    const Format format = parse_format(format_name);
    for (const DType dtype : dtypes) {
      const auto add = [&](const EncodePolicy& policy) {
        const std::string name =
            text(kernels.name, ": encode ", dtype_name(dtype), " -> ", format_name, ", ",
                 name_of(policy.rounding), ", ", name_of(policy.overflow));
        cases.push_back({name, true, [=, &buffers, &kernels] {
                           encode(value_view(buffers.input.data(), dtype, {kCount}),
                                  code_view(buffers.output.data(), format, {kCount}), policy,
                                  {.threads = 1, .backend = &kernels});
                         }});
      };
      for (const Rounding rounding : {Rounding::nearest_even, Rounding::up, Rounding::stochastic}) {
        add({.rounding = rounding, .overflow = Overflow::saturate, .nan_input = NanInput::zero});
      }
      add({.rounding = Rounding::nearest_even,
           .overflow = Overflow::ieee,
           .nan_input = NanInput::max});
      cases.push_back({text(kernels.name, ": decode ", format_name, " -> ", dtype_name(dtype)),
                       true, [=, &buffers, &kernels] {
                         decode(code_view(buffers.input.data(), format, {kCount}),
                                value_view(buffers.output.data(), dtype, {kCount}),
                                {.threads = 1, .backend = &kernels});
                       }});
    }
  }
}

// Values from the input, or (dequantize) codes and scales; oblivious_quantize.cc and quantize_job.h
// say what is not checked.
void add_quantizing(std::vector<Case>& cases, Buffers& buffers, const Kernels& kernels) {
  const Shape shape{2, 37};
  // A policy that searches: a control, which must differ.
  Scaling searching = preset("mxfp8");
  searching.policy = AmaxPolicy::mse;
  const auto found =
      std::make_shared<QuantizedTensor>(make_quantized(shape, DType::f32, searching));
  cases.push_back({"control quantize by mse", false, [=, &buffers, &kernels] {
                     quantize_into(value_view(buffers.input.data(), DType::f32, shape), *found,
                                   {.threads = 1, .backend = &kernels});
                   }});
  for (const char* name :
       {"mxfp8", "mxfp6", "mxfp4", "mxint8", "fp8", "fp8-channel", "fp8-1x128", "nvfp4"}) {
    const Scaling scaling = preset(name);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto q = std::make_shared<QuantizedTensor>(make_quantized(shape, dtype, scaling));
      const View values = value_view(buffers.input.data(), dtype, shape);
      const bool two_levels = scaling.scale.format == ScaleFormat::e4m3_f32;
      if (two_levels) q->rowwise.tensor_scale.span<float>()[0] = 0x1p-3F;
      cases.push_back(
          {text(kernels.name, ": quantize ", dtype_name(dtype), " -> ", name), true, [=, &kernels] {
             if (two_levels) {
               kernels.quantize({.threads = 1}, two_level_job(values, *q));
             } else {
               quantize_into(values, *q, {.threads = 1, .backend = &kernels});
             }
           }});
      cases.push_back({text(kernels.name, ": dequantize ", name, " -> ", dtype_name(dtype)), true,
                       [=, &buffers, &kernels] {
                         const std::uint8_t* from = buffers.input.data();
                         for (const Tensor* to : {&q->rowwise.codes, &q->rowwise.scales}) {
                           std::memcpy(to->bytes().data(), from, to->bytes().size());
                           from += to->bytes().size();
                         }
                         dequantize_into(*q, value_view(buffers.output.data(), dtype, shape),
                                         {.threads = 1, .backend = &kernels});
                       }});
    }
  }
}

// Copies the input, again and again, to memory of any size.
void fill_from(const std::vector<std::uint8_t>& input, std::span<std::uint8_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = input[i % input.size()];
}

using Operands = std::vector<std::shared_ptr<HiddenOperand>>;

// `run` of operands that are filled before it, outside of what is compared: that is the same for
// all inputs anyway.
void add_with_operands(std::vector<Case>& cases, Buffers& buffers, const std::string& name,
                       const Operands& operands, const std::function<void()>& run) {
  cases.push_back({name, true, [=, &buffers] {
                     std::vector<std::span<std::uint8_t>> all;
                     for (const auto& operand : operands) operand->add_to(all);
                     for (const std::span<std::uint8_t> bytes : all)
                       fill_from(buffers.input, bytes);
                     run();
                   }});
}

// Products and attention of this machine's kernels, which valgrind may not have.
void add_products(std::vector<Case>& cases, Buffers& buffers, const Kernels& kernels) {
  constexpr std::int64_t kCols = 33, kDepth = 96;
  for (const std::int64_t rows : {1, 24})
    for (const char* name : {"bfloat16", "mxfp8"}) {
      const auto a = std::make_shared<HiddenOperand>(name, Shape{rows, kDepth}),
                 b = std::make_shared<HiddenOperand>(name, Shape{kCols, kDepth});
      const Tensor out = Tensor::values({rows, kCols}, DType::f32);
      add_with_operands(cases, buffers, text(kernels.name, ": product ", name, ", ", rows, " rows"),
                        {a, b}, [=, &kernels] {
                          gemm_into(a->operand(), b->operand(), out.view(),
                                    {.oblivious = true, .threads = 1, .backend = &kernels});
                        });
    }
}
void add_attention(std::vector<Case>& cases, Buffers& buffers, const Kernels& kernels) {
  constexpr std::int64_t kQueries = 5, kKeys = 20, kDepth = 32;
  for (const char* name : {"bfloat16", "fp8-channel"}) {
    const auto q = std::make_shared<HiddenOperand>(name, Shape{1, 1, kQueries, kDepth}),
               k = std::make_shared<HiddenOperand>(name, Shape{1, 1, kKeys, kDepth}),
               v = std::make_shared<HiddenOperand>(name, Shape{1, 1, kKeys, kDepth});
    const Tensor out = Tensor::values({1, 1, kQueries, kDepth}, DType::f32);
    add_with_operands(
        cases, buffers, text(kernels.name, ": attention of ", name), {q, k, v}, [=, &kernels] {
          attention_into(
              q->operand(), k->operand(), v->operand(), out.view(),
              {.rung = AttentionRung::bf16, .oblivious = true, .threads = 1, .backend = &kernels});
        });
  }
}

[[noreturn]] void run_child(const std::vector<Case>& cases, Buffers& buffers) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kSkipped);
  raise(SIGSTOP);
  for (const Case& one : cases) {
    // Untraced, for what happens only the first times, as the heap's first blocks of a size.
    for (int i = 0; i < 3; ++i) one.run();
    for (int input = 0; input < kInputs; ++input) {
      fill(buffers.input, input);
      raise(SIGUSR1);
      one.run();
      raise(SIGUSR2);
    }
  }
  _exit(0);
}

// ---- What the parent sees.
using Trace = std::vector<std::uint64_t>;  // the address of every instruction, and those it touches

class Stepper {
 public:
  explicit Stepper(pid_t child) : child_(child) {}

  // The signal at which the child stops next; 0 when it has ended instead.
  int wait_for_stop() {
    int status = 0;
    return waitpid(child_, &status, 0) == child_ && WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
  }

  // From SIGUSR1 to SIGUSR2; false when the child does something else.
  bool record(Trace& trace) {
    trace.clear();
    if (go(PTRACE_CONT) != SIGUSR1) return false;
    while (trace.size() < kMaxSteps) {
      const int signal_number = go(PTRACE_SINGLESTEP);
      if (signal_number != SIGTRAP) return signal_number == SIGUSR2;
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
    trace.push_back(registers.pc);
    const std::uint32_t word = instruction(registers.pc);
    // Loads and stores (Arm ARM C4.1): the base register, and the index where there is one.
    constexpr std::uint32_t kLoadStoreMask = 0x0A000000, kLoadStore = 0x08000000;
    constexpr std::uint32_t kIndexedMask = 0x3B200C00, kIndexed = 0x38200800;
    if ((word & kLoadStoreMask) != kLoadStore) return;
    const std::uint32_t base = word >> 5 & 31, index = word >> 16 & 31;
    trace.push_back(base == 31 ? registers.sp : registers.regs[base]);
    if ((word & kIndexedMask) == kIndexed && index != 31) trace.push_back(registers.regs[index]);
  }
  std::uint32_t instruction(std::uint64_t pc) {
    const auto [found, is_new] = instructions_.try_emplace(pc, 0);
    if (is_new) {
      found->second = static_cast<std::uint32_t>(
          ptrace(PTRACE_PEEKTEXT, child_, reinterpret_cast<void*>(pc), nullptr));
    }
    return found->second;
  }
#else
  void append_state(Trace& trace) {
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, child_, nullptr, &registers);
    trace.push_back(registers.rip);
  }
#endif

  pid_t child_;
  std::unordered_map<std::uint64_t, std::uint32_t> instructions_;
};

// Where this program is in memory, so that an address can be found in its disassembly.
std::uint64_t image_begin() {
  std::uint64_t begin = 0;
  std::ifstream("/proc/self/maps") >> std::hex >> begin;
  return begin;
}

int compare(const std::vector<Case>& cases, pid_t child) {
  Stepper stepper(child);
  if (stepper.wait_for_stop() != SIGSTOP) return kSkipped;
  int wrong = 0;
  std::size_t steps = 0;
  Trace first, other;
  for (const Case& one : cases) {
    int differing = 0;
    for (int input = 0; input < kInputs; ++input) {
      if (!stepper.record(input == 0 ? first : other)) {
        std::printf("%s: could not be traced\n", one.name.c_str());
        return 1;
      }
      steps += first.size();
      if (input > 0 && other != first) {
        ++differing;
        const auto at = std::ranges::mismatch(first, other);
        if (one.oblivious && at.in1 != first.end() && at.in1 != first.begin())
          std::printf("%s: traces part after the instruction at %#llx\n", one.name.c_str(),
                      static_cast<unsigned long long>(*(at.in1 - 1) - image_begin()));
      }
    }
    if ((differing > 0) == one.oblivious) {
      ++wrong;
      std::printf("%s: %d of %d traces differ from the first\n", one.name.c_str(), differing,
                  kInputs - 1);
    }
  }
  std::printf("%zu cases, %d wrong, %zu words of trace\n", cases.size(), wrong, steps);
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace octavo::oblivious

int main() {
  using namespace octavo::oblivious;
  static Buffers buffers;
  std::vector<Case> cases;
  add_controls(cases, buffers);
  const octavo::Kernels& kernels = octavo::cpu_backend();
  if (&kernels != &octavo::reference_backend()) {
    add_conversions(cases, buffers, kernels);
    add_quantizing(cases, buffers, kernels);
    add_products(cases, buffers, kernels);
    add_attention(cases, buffers, kernels);
  }
  const pid_t child = fork();
  if (child == 0) run_child(cases, buffers);
  if (child < 0) return 1;
  const int result = compare(cases, child);
  kill(child, SIGKILL);  // a zombie at most: it is not waited for before this process ends
  if (result == kSkipped) std::printf("skipped: ptrace is not allowed here\n");
  return result;
}
