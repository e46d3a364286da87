#include "octavo/backend/kernel_clock.h"

#include <atomic>
#include <chrono>
#include <mutex>

#include "octavo/backend/kernel_clock_internal.h"
#include "octavo/backend/registry.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

std::atomic<std::int64_t> nanoseconds = 0, call_count = 0;
// A timing table is created once and never freed: a call that began while a clock ran may still
// hold it.
struct StandIn {
  const Kernels* real;
  Kernels timed;
};
std::atomic<const StandIn*> running = nullptr;

class Stopwatch {
 public:
  ~Stopwatch() {
    const auto passed = std::chrono::steady_clock::now() - start_;
    nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count();
    ++call_count;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The backend that the timed entries call. Written before `running`.
std::atomic<const Kernels*> timed_backend = nullptr;

template <auto kSlot>
struct Timed;
template <typename Result, typename... Arguments, Result (*Kernels::*kSlot)(Arguments...)>
struct Timed<kSlot> {
  static Result call(Arguments... arguments) {
    const Stopwatch watch;
    return (timed_backend.load()->*kSlot)(arguments...);
  }
};

template <auto... kSlots>
void time_each(Kernels& table) {
  const auto wrap = [&]<auto kSlot>() {
    if (table.*kSlot != nullptr) table.*kSlot = &Timed<kSlot>::call;
  };
  (wrap.template operator()<kSlots>(), ...);
}

// Only one backend can be timed in a process: the first one.
const StandIn& stand_in_for(const Kernels& real) {
  static const StandIn* const kOnly = [&] {
    auto* made = new StandIn{&real, real};
    timed_backend = &real;
    time_each<&Kernels::encode, &Kernels::decode, &Kernels::quantize, &Kernels::dequantize,
              &Kernels::amax, &Kernels::count_magnitudes, &Kernels::add_fit_squares,
              &Kernels::tensor_scale, &Kernels::align_exponents, &Kernels::quantize_aligned,
              &Kernels::produce, &Kernels::rope, &Kernels::delayed_update, &Kernels::gemm,
              &Kernels::column_sums, &Kernels::attention, &Kernels::attention_backward,
              &Kernels::attention_prepare, &Kernels::attention_statistics,
              &Kernels::attention_norms, &Kernels::count_nan, &Kernels::row_error,
              &Kernels::largest_bits, &Kernels::subtract_f64, &Kernels::transpose>(made->timed);
    return made;
  }();
  return *kOnly;
}

std::mutex clocks;
bool is_taken = false;

}  // namespace

const Kernels& clocked(const Kernels& chosen) {
  const StandIn* instead = running.load(std::memory_order_acquire);
  return instead != nullptr && instead->real == &chosen ? instead->timed : chosen;
}

KernelClock::KernelClock() {
  const Kernels& real = cpu_backend();
  const std::lock_guard held(clocks);
  check(!is_taken, ErrorCode::unsupported, "KernelClock",
        "got a second clock; expected one at a time; destroy the running one first");
  const StandIn& instead = stand_in_for(real);
  check(instead.real == &real, ErrorCode::unsupported, "KernelClock", "backend '",
        instead.real->name, "' was timed in this process, and now '", real.name,
        "' is chosen; time each backend in a process of its own");
  nanoseconds = 0;
  call_count = 0;
  is_taken = true;
  running.store(&instead, std::memory_order_release);
}

KernelClock::~KernelClock() {
  const std::lock_guard held(clocks);
  running = nullptr;
  is_taken = false;
}

double KernelClock::seconds() const { return 1e-9 * static_cast<double>(nanoseconds.load()); }
std::int64_t KernelClock::calls() const { return call_count; }

}  // namespace octavo
