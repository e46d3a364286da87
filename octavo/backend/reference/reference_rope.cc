// Reference rotary position embedding, by the definition in rope_job.h.
#include <cmath>

#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/backend/rope_job.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {
namespace {

Matrix head_of(const RopeJob& job, const RopeOperand& of, std::int64_t batch, std::int64_t token,
               std::int64_t head) {
  return {.data = static_cast<std::byte*>(of.data) + batch * of.batch_stride +
                  token * of.token_stride + head * of.head_stride,
          .dtype = job.dtype,
          .rows = 1,
          .cols = job.size,
          .col_stride = element_bytes(job.dtype)};
}

}  // namespace

void rope(const Exec&, const RopeJob& job) {
  const FpEnvGuard guard;
  for (std::int64_t batch = 0; batch < job.batches; ++batch)
    for (std::int64_t token = 0; token < job.tokens; ++token)
      for (std::int64_t head = 0; head < job.heads; ++head) {
        const Matrix x = head_of(job, job.x, batch, token, head);
        const Matrix out = head_of(job, job.out, batch, token, head);
        const auto position = static_cast<float>(job.first_position + token);
        for (std::int64_t i = 0; i < job.pairs; ++i) {
          const float angle = position * job.inverse_frequencies[i];
          const float c = static_cast<float>(std::cos(static_cast<double>(angle))) * job.factor;
          const float s = static_cast<float>(std::sin(static_cast<double>(angle))) * job.factor;
          const auto first = static_cast<float>(load_value(x, 0, i));
          const auto second = static_cast<float>(load_value(x, 0, i + job.pairs));
          const float left = first * c - second * s, right = second * c + first * s;
          store_value(out, 0, i, static_cast<double>(left));
          store_value(out, 0, i + job.pairs, static_cast<double>(right));
        }
        for (std::int64_t i = 2 * job.pairs; i < job.size; ++i)
          store_value(out, 0, i, load_value(x, 0, i));
      }
}

}  // namespace octavo::reference
