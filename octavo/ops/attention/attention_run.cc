// Dispatch of attention kernels: the chosen backend, or reference where that does not offer the
// job. Lengths and ranges are the host's until here: a device gets copies.
#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/exec/temporary_internal.h"
#include "octavo/ops/attention/attention_call_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention";

template <typename Job>
using Entry = void (*Kernels::*)(const Exec&, const Job&);

template <typename Job>
const Kernels& chosen(const Exec& exec, const AttentionOptions& options, const Job& job,
                      Entry<Job> entry, bool (*Kernels::*offered)(const Job&)) {
  const auto offers = [&](const Kernels& kernels) {
    if (kernels.*entry == nullptr) return false;
    return offered == nullptr || kernels.*offered == nullptr || (kernels.*offered)(job);
  };
  if (exec.device.kind != DeviceKind::cpu) {
    const Kernels& kernels = device_backend(exec.device, options.backend, kOp);
    if (!offers(kernels)) fail_not_offered(kernels, kOp, "attention of this kind");
    return kernels;
  }
  const Kernels& kernels = checked_cpu_backend(options.backend, kOp);
  if (offers(kernels) && !(options.oblivious && &kernels == &reference_backend())) return kernels;
  check(!options.oblivious, ErrorCode::unsupported, kOp, "backend '", kernels.name,
        "' has no data-oblivious kernel for it, and 'reference' branches on data");
  if (exec.log != nullptr && offered != nullptr)
    exec.log->once(text("[attention] backend '", kernels.name,
                        "' does not offer it; falls back to 'reference', which is slow"));
  return reference_backend();
}

template <typename Job>
void run(const Exec& exec, const AttentionOptions& options, const Job& job, Entry<Job> entry,
         std::int64_t (*Kernels::*workspace)(const Exec&, const Job&),
         bool (*Kernels::*offered)(const Job&)) {
  const Kernels& kernels = chosen(exec, options, job, entry, offered);
  const std::int64_t wanted = kernels.*workspace != nullptr ? (kernels.*workspace)(exec, job) : 0;
  Exec there = exec;
  StagingMemory memory(there);
  if (wanted > static_cast<std::int64_t>(there.workspace.size())) {
    void* bytes = memory.at_least((wanted + 3) / static_cast<std::int64_t>(sizeof(float)));
    there.workspace = {static_cast<std::byte*>(bytes), static_cast<std::size_t>(wanted)};
  }
  (kernels.*entry)(there, job);
}

AttentionJob with_copies(AttentionJob job, const AttentionOptions& options, DeviceCopies& copies) {
  job.query_lengths = copies.of(job.query_lengths, job.batches);
  if (options.mask.device_key_lengths == nullptr)
    job.key_lengths = copies.of(job.key_lengths, job.batches);
  job.ranges = copies.of(job.ranges, job.range_count);
  return job;
}

}  // namespace

void run_attention(const Exec& exec, const AttentionOptions& options, const AttentionJob& job) {
  DeviceCopies copies(exec);
  run<AttentionJob>(exec, options, with_copies(job, options, copies), &Kernels::attention,
                    &Kernels::attention_workspace, &Kernels::attention_offered);
}

void run_attention_backward(const Exec& exec, const AttentionOptions& options,
                            const AttentionBackwardJob& job) {
  DeviceCopies copies(exec);
  AttentionBackwardJob there = job;
  there.forward = with_copies(job.forward, options, copies);
  run<AttentionBackwardJob>(exec, options, there, &Kernels::attention_backward,
                            &Kernels::attention_backward_workspace,
                            &Kernels::attention_backward_offered);
}

void run_attention_prepare(const Exec& exec, const AttentionOptions& options,
                           const AttentionPrepareJob& job) {
  DeviceCopies copies(exec);
  AttentionPrepareJob there = job;
  there.lengths = copies.of(job.lengths, job.batches);
  chosen<AttentionPrepareJob>(exec, options, there, &Kernels::attention_prepare, nullptr)
      .attention_prepare(exec, there);
}

void run_attention_norms(const Exec& exec, const AttentionOptions& options,
                         const AttentionNormsJob& job) {
  chosen<AttentionNormsJob>(exec, options, job, &Kernels::attention_norms, nullptr)
      .attention_norms(exec, job);
}

std::optional<AttentionRounding> known_rounding(const Exec& exec, const AttentionOptions& options,
                                                const AttentionJob& job) {
  Exec quiet = exec;  // what runs them warns
  quiet.log = nullptr;
  const Kernels& kernels =
      chosen<AttentionJob>(quiet, options, job, &Kernels::attention, &Kernels::attention_offered);
  AttentionRounding rounding;
  if (kernels.attention_rounding == nullptr || !kernels.attention_rounding(job, rounding))
    return std::nullopt;
  return rounding;
}

AttentionRounding attention_rounding(const Exec& exec, const AttentionOptions& options,
                                     const AttentionJob& job) {
  const std::optional<AttentionRounding> rounding = known_rounding(exec, options, job);
  const Kernels& kernels =
      chosen<AttentionJob>(exec, options, job, &Kernels::attention, &Kernels::attention_offered);
  check(rounding.has_value(), ErrorCode::unsupported, kOp, "got a certified bound of kernels of '",
        kernels.name,
        "' of which none is derived; take precision 'f32', or the backend 'reference'");
  return *rounding;
}

void run_attention_statistics(const Exec& exec, const AttentionOptions& options,
                              const AttentionStatisticsJob& job) {
  DeviceCopies copies(exec);
  AttentionStatisticsJob there = job;
  there.lengths = copies.of(job.lengths, job.batches);
  chosen<AttentionStatisticsJob>(exec, options, there, &Kernels::attention_statistics, nullptr)
      .attention_statistics(exec, there);
}

}  // namespace octavo
