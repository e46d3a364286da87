// How far the attention kernels of a CPU may be off, whatever their inputs (AttentionRounding): the
// worst method of the chain that a job may take. docs/numerics/attention-bound.md derives it.
#include "octavo/backend/attention_norms_job.h"
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/base/running_extremes.h"

namespace octavo::cpu {
namespace {

constexpr double kUnit = 0x1p-24;
// The polynomial of 2^x and its roundings: of weights in f32 and in bf16, which is rounded once
// more.
constexpr double kF32Weights = 0x1p-22, kBf16Weights = 0x1p-8 + 7.5e-5;
// Weights below 2^-126 of a power of two at or above the largest are 0.
constexpr double kLost = 0x1p-125;

// Rows of V times scales over the largest one are below 2^10; tiles take what lies 2^-126 below for
// zero.
constexpr double kFlushed = 0x1p-115;

// Sums in f16 are off by parts of a run that no norm of a row bounds sharply: none is derived.
bool is_derived(PackedType packed_type) {
  return packed_type == PackedType::f32 || packed_type == PackedType::bf16;
}

// Sums of D products, of operands that are products of a code, scales and a factor themselves; or,
// in limbs, what two rows of integers leave out: D amax(q) amax(k) (2^-13 + 2^-14), and norms are
// at least amaxes.
double score_rounding(PackedType packed_type, double depth) {
  const double sums = (depth + 8.0) * kUnit;
  return packed_type == PackedType::i8 ? sums + depth * (0x1p-13 + 0x1p-14) : sums;
}

bool add_method(const AttentionMethod& method, const AttentionJob& job, AttentionRounding& to) {
  const PackedType scores = method.score_type, weights = method.weigh_type;
  if (!(is_derived(scores) || scores == PackedType::i8) || !is_derived(weights)) return false;
  raise(to.scores, score_rounding(scores, static_cast<double>(job.q.first.cols())));
  raise(to.weights, weights == PackedType::bf16 ? kBf16Weights : kF32Weights);
  std::int64_t terms = job.keys;
  if (method.sums_by_tile && method.tile_keys < terms)
    terms = method.tile_keys + (job.keys + method.tile_keys - 1) / method.tile_keys;
  raise(to.sums, static_cast<double>(terms + 8) * kUnit);
  if (method.takes_key_factors) raise(to.flushed, kFlushed);
  return true;
}

bool add_decode(const AttentionMethod& method, const AttentionJob& job, AttentionRounding& to) {
  const DecodeKernels* const kernels[2] = {method.decode_kernels(job.k.first),
                                           method.decode_kernels(job.v.first)};
  for (const DecodeKernels* const one : kernels) {
    if (!is_derived(one->packed_type)) return false;
    if (one->packed_type == PackedType::bf16) raise(to.weights, kBf16Weights);
  }
  raise(to.sums, static_cast<double>(job.keys + 8) * kUnit + kernels[1]->weights_off);
  raise(to.flushed, static_cast<double>(job.keys) * kernels[1]->flushed);
  return true;
}

}  // namespace

bool attention_rounding_of(const AttentionMethod& method, const AttentionJob& job,
                           AttentionRounding& rounding) {
  rounding = {.unit = kUnit, .lost = kLost};
  for (const AttentionMethod* one = &method; one != nullptr; one = one->precise)
    if (!add_method(*one, job, rounding)) return false;
  return !is_decode(method, job) || add_decode(method, job, rounding);
}

}  // namespace octavo::cpu
