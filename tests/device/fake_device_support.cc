#include <sys/mman.h>

#include <cstring>
#include <map>
#include <vector>

#include "fake_device.h"
#include "octavo/backend/align_job.h"
#include "octavo/backend/append_job.h"
#include "octavo/backend/attention_job.h"
#include "octavo/backend/registry.h"
#include "octavo/backend/registry_testing_internal.h"
#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"

namespace octavo::testing {
namespace {

constexpr int kDevices = 2;
constexpr std::size_t kArena = std::size_t{128} << 20, kStep = 4096, kGuard = 256;
constexpr int kPoison = 0xCD, kCanary = 0xA5;

struct Block {
  std::size_t bytes;
  bool lasting;
  bool of_a_graph;  // taken while the stream was captured: CUDA does not know of it yet
};

struct State {
  std::byte* arena[kDevices] = {};
  std::size_t used[kDevices] = {};
  std::map<std::byte*, Block> blocks;
  Diary diary;
  Kernels kernels;
  bool capturing = false;
  int open = 0;

  void break_promise(const std::string& what) {
    if (diary.broken.empty()) diary.broken = what;
  }
};
State* state = nullptr;

void protect(int rights) {
  for (std::byte* arena : state->arena) {
    if (mprotect(arena, kArena, rights) != 0) std::abort();
  }
}

// The device may touch its memory while one of these lives.
struct Open {
  Open() {
    if (state->open++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (--state->open == 0) protect(PROT_NONE);
  }
};

bool is_in(int index, const void* memory) {
  const auto* at = static_cast<const std::byte*>(memory);
  return at >= state->arena[index] && at < state->arena[index] + kArena;
}

void* take(int index, std::size_t bytes, bool lasting) {
  const Open open;
  std::byte* block = state->arena[index] + state->used[index];
  const std::size_t whole = (bytes + kGuard + kStep - 1) / kStep * kStep;
  check(state->used[index] + whole <= kArena, ErrorCode::device, "fake", "out of memory: expected ",
        bytes, " bytes");
  state->used[index] += whole;
  std::memset(block, kPoison, bytes);
  std::memset(block + bytes, kCanary, kGuard);
  state->blocks[block] = {bytes, lasting, state->capturing && !lasting};
  return block;
}

void give_back(void* memory, bool lasting) {
  const Open open;
  const auto found = state->blocks.find(static_cast<std::byte*>(memory));
  if (found == state->blocks.end()) return state->break_promise("released what it did not have");
  if (found->second.lasting != lasting) state->break_promise("released by the wrong function");
  for (std::size_t i = 0; i < kGuard; ++i)
    if (found->first[found->second.bytes + i] != std::byte{kCanary})
      state->break_promise("wrote past the end of a block");
  std::memset(memory, kPoison, found->second.bytes);
  state->blocks.erase(found);
}

void queue(const Exec& exec) {
  state->diary.streams.insert(exec.stream);
  if (exec.device.kind != DeviceKind::cuda) state->break_promise("a call without its device");
}

void launch(const Exec& exec) {
  queue(exec);
  ++state->diary.launches;
  state->diary.workspace = exec.workspace.size();
}

// Waiting is refused as CUDA refuses it.
void wait_for(const Exec& exec) {
  queue(exec);
  ++state->diary.waits;
  if (state->capturing) state->break_promise("waited while the stream was captured");
}

std::string pointer_problem(const Exec& exec, const void* memory) {
  for (int i = 0; i < kDevices; ++i) {
    if (!is_in(i, memory)) continue;
    if (i != exec.device.index) return text("it is memory of cuda:", i);
    const auto after =
        state->blocks.upper_bound(static_cast<std::byte*>(const_cast<void*>(memory)));
    if (after == state->blocks.begin()) return "it was never allocated";
    const auto& [start, block] = *std::prev(after);
    if (block.of_a_graph) return "it is not memory that is known";
    return memory < start + std::max<std::size_t>(block.bytes, 1) ? "" : "it was freed";
  }
  return "it is memory of the host";
}

const DeviceApi kApi{.kernels = nullptr,
                     .allocate =
                         [](const Exec& exec, std::size_t bytes) {
                           queue(exec);
                           void* const memory = take(exec.device.index, bytes, false);
                           ++state->diary.allocations;
                           ++state->diary.live_allocations;
                           return memory;
                         },
                     .release =
                         [](const Exec& exec, void* memory) noexcept {
                           queue(exec);
                           --state->diary.live_allocations;
                           give_back(memory, false);
                         },
                     .allocate_lasting =
                         [](const Exec& exec, std::size_t bytes) {
                           if (state->capturing)
                             state->break_promise("allocated while the stream was captured");
                           ++state->diary.lasting;
                           ++state->diary.live_lasting;
                           return take(exec.device.index, bytes, true);
                         },
                     .free_lasting =
                         [](int, void* memory) noexcept {
                           --state->diary.live_lasting;
                           give_back(memory, true);
                         },
                     .copy =
                         [](const Exec& exec, void* to, const void* from, std::size_t bytes) {
                           queue(exec);
                           ++state->diary.copies;
                           const bool inside =
                               is_in(exec.device.index, to) && is_in(exec.device.index, from);
                           if (state->capturing && !inside)
                             state->break_promise("copied from or to the host");
                           const Open open;
                           std::memcpy(to, from, bytes);
                         },
                     .upload =
                         [](const Exec& exec, void* to, const void* from, std::size_t bytes) {
                           queue(exec);
                           if (!is_in(exec.device.index, to))
                             state->break_promise("uploaded to the host");
                           const Open open;
                           std::memcpy(to, from, bytes);
                         },
                     .clear =
                         [](const Exec& exec, void* memory, std::size_t bytes) {
                           queue(exec);
                           ++state->diary.clears;
                           const Open open;
                           std::memset(memory, 0, bytes);
                         },
                     .wait = wait_for,
                     .capturing = [](const Exec&) { return state->capturing; },
                     .pointer_problem = pointer_problem};

// Every entry of reference with the memory accessible. By rows only, so that tests cover both the
// fused and the two-pass path.
bool quantize_aligned_rows(const Exec& exec, const QuantizeJob& mx, const QuantizedMatrix& to,
                           std::int64_t* changed) {
  if (to.tile.cols != 0) return false;
  launch(exec);
  const Open open;
  const std::int64_t blocks = tile_count(kMxBlock, to.codes.cols);
  std::vector<std::uint8_t> exponents(static_cast<std::size_t>(to.codes.rows * blocks));
  QuantizeJob job = mx;
  job.rowwise.scales = {.data = exponents.data(),
                        .dtype = DType::code,
                        .format = e8m0fnu,
                        .rows = to.codes.rows,
                        .cols = blocks,
                        .row_pitch = blocks,
                        .col_stride = 1};
  reference_backend().quantize({}, job);
  reference_backend().align_exponents({}, {.from = job.rowwise, .to = to, .changed = changed});
  return true;
}

Kernels make_kernels() {
  return {.name = "fake",
          .description = "the reference on memory that the host cannot touch",
          .encode =
              [](const Exec& exec, const Matrix& values, const Matrix& codes,
                 const EncodePolicy& policy, Counts* counts) {
                launch(exec);
                const Open open;
                reference_backend().encode({}, values, codes, policy, counts);
              },
          .decode =
              [](const Exec& exec, const Matrix& codes, const Matrix& values) {
                launch(exec);
                const Open open;
                reference_backend().decode({}, codes, values);
              },
          .quantize =
              [](const Exec& exec, const QuantizeJob& job) {
                launch(exec);
                const Open open;
                reference_backend().quantize({}, job);
              },
          .dequantize =
              [](const Exec& exec, const QuantizedMatrix& from, const Matrix& values) {
                launch(exec);
                const Open open;
                reference_backend().dequantize({}, from, values);
              },
          .amax =
              [](const Exec& exec, const QuantizeSource& source, AmaxOf of, float* amax) {
                launch(exec);
                const Open open;
                reference_backend().amax({}, source, of, amax);
              },
          .tensor_scale =
              [](const Exec& exec, const ScaleSpec& spec, const Format& element, const float* amax,
                 float* scale) {
                launch(exec);
                const Open open;
                reference_backend().tensor_scale({}, spec, element, amax, scale);
              },
          .align_exponents =
              [](const Exec& exec, const MxAlignJob& job) {
                launch(exec);
                const Open open;
                reference_backend().align_exponents({}, job);
              },
          .quantize_aligned = quantize_aligned_rows,
          .produce =
              [](const Exec& exec, const Matrix& x, const Producer& producer, const Matrix& out) {
                launch(exec);
                const Open open;
                reference_backend().produce({}, x, producer, out);
              },
          .delayed_update =
              [](const Exec& exec, const DelayedJob& job) {
                launch(exec);
                const Open open;
                reference_backend().delayed_update({}, job);
              },
          .gemm =
              [](const Exec& exec, const GemmJob& job) {
                launch(exec);
                const Open open;
                reference_backend().gemm({}, job);
              },
          .column_sums =
              [](const Exec& exec, const Matrix& values, const Matrix& before, const Matrix& sums) {
                launch(exec);
                const Open open;
                reference_backend().column_sums({}, values, before, sums);
              },
          .attention =
              [](const Exec& exec, const AttentionJob& job) {
                launch(exec);
                const Open open;
                reference_backend().attention({}, job);
              },
          .attention_backward =
              [](const Exec& exec, const AttentionBackwardJob& job) {
                launch(exec);
                const Open open;
                reference_backend().attention_backward({}, job);
              },
          .attention_prepare =
              [](const Exec& exec, const AttentionPrepareJob& job) {
                launch(exec);
                const Open open;
                reference_backend().attention_prepare({}, job);
              },
          .attention_statistics =
              [](const Exec& exec, const AttentionStatisticsJob& job) {
                launch(exec);
                const Open open;
                reference_backend().attention_statistics({}, job);
              },
          .count_nan =
              [](const Exec& exec, const Matrix& values) {
                launch(exec);
                wait_for(exec);
                const Open open;
                return reference_backend().count_nan({}, values);
              },
          .append_tokens =
              [](const Exec& exec, const AppendJob& job) {
                launch(exec);
                const Open open;
                reference_backend().append_tokens({}, job);
              }};
}

DeviceApi api_with_kernels() {
  DeviceApi api = kApi;
  static Kernels* const kKernels = new Kernels;  // as long as the program: identity is compared
  api.kernels = kKernels;
  return api;
}

DeviceApi* the_api() {
  static DeviceApi api = api_with_kernels();
  return &api;
}

}  // namespace

FakeDevice::FakeDevice() {
  state = new State;
  for (std::byte*& arena : state->arena)
    arena = static_cast<std::byte*>(
        mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  offer(make_kernels());
  static const StandIn kStandIn{.api = the_api(), .device_count = kDevices};
  set_stand_in(&kStandIn);
}

FakeDevice::~FakeDevice() {
  set_stand_in(nullptr);
  for (std::byte* arena : state->arena) munmap(arena, kArena);
  delete state;
  state = nullptr;
}

Diary& FakeDevice::diary() const { return state->diary; }
const DeviceApi& FakeDevice::api() const { return *the_api(); }
void FakeDevice::capture(bool on) { state->capturing = on; }
void FakeDevice::offer(const Kernels& kernels) {
  *const_cast<Kernels*>(the_api()->kernels) = kernels;
}
void* FakeDevice::memory(std::size_t bytes, int index) const { return take(index, bytes, true); }

}  // namespace octavo::testing
