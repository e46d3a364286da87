// Dispatch: the attention kernel of a job. Fast kernels are asked in turn; the general one takes
// the rest.
#include <string>

#include "octavo/backend/cuda/attention/decode/decode.h"
#include "octavo/backend/cuda/attention/decode/decode_pages.h"
#include "octavo/backend/cuda/attention/forward/forward.h"
#include "octavo/backend/cuda/attention/general.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/error.h"
#include "octavo/base/log.h"
#include "octavo/format/parse_format.h"
#include "octavo/tensor/dtype.h"

namespace octavo::cuda {
namespace {

std::string words_for(const AttentionOperand& operand) {
  if (!operand.first.is_quantized()) return std::string(dtype_name(operand.first.values.dtype));
  return format_name(operand.first.quantized.codes.format);
}

// Rungs f32 and exact have no other kernel; of the rest it is worth a word.
void tell_general(const Exec& exec, const AttentionJob& job) {
  if (exec.log == nullptr || job.p == AttentionP::f32 || job.p == AttentionP::f64) return;
  exec.log->once(text("[attention] head sizes ", job.q.first.cols(), " and ", job.v.first.cols(),
                      " of ", words_for(job.q), ", ", words_for(job.k), " and ", words_for(job.v),
                      " have no tensor-core kernel and take the general kernel, which is far "
                      "slower; the fast ones take head sizes up to 256"));
}

// Kernels that read no block table get K and V side by side.
void attention_of_pages(const Exec& exec, const AttentionJob& job) {
  const GatheredPages gathered(exec, job);
  Exec inner = without_workspace(exec);
  const auto bytes = static_cast<std::size_t>(attention_workspace(inner, gathered.job()));
  const Scratch memory(inner, bytes);
  inner.workspace = {memory.as<std::byte>(), bytes};
  attention(inner, gathered.job());
}

}  // namespace

bool attention_offered(const AttentionJob&) { return true; }

std::int64_t attention_workspace(const Exec& exec, const AttentionJob& job) {
  if (attention_decode_offered(job)) return attention_decode_workspace(exec, job);
  if (job.pages.exist()) return 0;
  return attention_forward_workspace(exec, job);
}

void attention(const Exec& exec, const AttentionJob& job) {
  const Scope scope(exec);
  if (attention_decode_offered(job)) return attention_decode(exec, job);
  if (job.pages.exist()) return attention_of_pages(exec, job);
  if (attention_forward_offered(job)) return attention_forward(exec, job);
  tell_general(exec, job);
  AttentionJob general = job;
  // Rounding P saves the general kernel nothing.
  if (job.p == AttentionP::bf16 || job.p == AttentionP::f16 || job.p == AttentionP::fp8 ||
      job.p == AttentionP::fp8_split) {
    general.p = AttentionP::f32;
    general.p_factor = 1.0F;
  }
  attention_general(exec, general);
}

}  // namespace octavo::cuda
