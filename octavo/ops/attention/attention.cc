#include "octavo/ops/attention/attention.h"

#include <array>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/exec/temporary_internal.h"
#include "octavo/ops/attention/attention_amaxes_internal.h"
#include "octavo/ops/attention/attention_auto_internal.h"
#include "octavo/ops/attention/attention_bounded_internal.h"
#include "octavo/ops/attention/attention_call_internal.h"
#include "octavo/ops/attention/attention_pages_internal.h"
#include "octavo/ops/attention/attention_rungs_internal.h"
#include "octavo/ops/attention/attention_statistics_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention";

void check_result(const View& out, const AttentionCall& call) {
  check_view(out, kOp, "the output");
  check_output(out, kOp);
  check(out.dtype == DType::f32 || out.dtype == DType::f16 || out.dtype == DType::bf16 ||
            out.dtype == DType::f64,
        ErrorCode::wrong_type, kOp, "the output is ",
        is_value(out.dtype) ? dtype_name(out.dtype) : "codes",
        "; expected float32, float16, bfloat16 or float64 (for codes see attention_quantized)");
  const Shape wanted = call.out_shape();
  if (out.shape != wanted)
    fail(ErrorCode::invalid_argument, kOp, "the output has shape ", to_string(out.shape),
         "; expected ", to_string(wanted));
}

// A number for every row.
void check_row_numbers(const View& view, const AttentionCall& call, std::string_view name) {
  check_view(view, kOp, name);
  check_output(view, kOp);
  check(view.dtype == DType::f32, ErrorCode::wrong_type, kOp, name, " is ",
        is_value(view.dtype) ? dtype_name(view.dtype) : "codes", "; expected float32");
  const Shape& q = call.q_operand.shape();
  const Shape wanted(q.sizes().first(static_cast<std::size_t>(q.rank() - 1)));
  if (view.shape != wanted)
    fail(ErrorCode::invalid_argument, kOp, name, " has shape ", to_string(view.shape),
         "; expected ", to_string(wanted));
}

bool is_given(const View& view) { return view.data != nullptr || view.shape.rank() > 0; }

DType type_of_result(const Operand& q, const AttentionOptions& options) {
  if (options.out) return *options.out;
  if (q.quantized() != nullptr) return DType::f32;
  return q.values().dtype;
}

// A block table and lengths of a device.
void check_places(const AttentionCall& call, const Exec& exec) {
  const AttentionOptions& options = call.options;
  const std::int64_t* const lengths = options.mask.device_key_lengths;
  const bool is_cpu = exec.device.kind == DeviceKind::cpu;
  check(lengths == nullptr || !is_cpu, ErrorCode::invalid_argument, kOp,
        "got lengths of keys on a device for tensors on the CPU; give key_lengths");
  if (is_cpu || (!options.block_table.exists() && lengths == nullptr)) return;
  check_beside(exec, options.block_table.blocks, sizeof(std::int32_t), kOp, "the block table");
  check_beside(exec, lengths, sizeof(std::int64_t), kOp, "the array of key lengths");
  check(call.takes_as_given(options.rung), ErrorCode::unsupported, kOp, "got precision ",
        name_of(options.rung),
        " with a block table, or lengths of keys on the device; expected exact, f32 or bf16, "
        "f16 with K and V in float16 or codes, or strict or fast with K and V in codes: the others "
        "read all of K first");
}

void check_amaxes(const AttentionCall& call, const Exec& exec) {
  if (call.options.amaxes == nullptr) return;
  check(exec.device.kind == DeviceKind::cpu, ErrorCode::unsupported, kOp,
        "got tensors of a device and a request for the largest S, P and O; they are found on a CPU "
        "alone");
  check(call.options.ranges.empty(), ErrorCode::invalid_argument, kOp,
        "got ranges of rows and a request for the largest S, P and O, which are of all rows");
}

void check_oblivious(const AttentionCall& call, const Exec& exec) {
  const AttentionOptions& options = call.options;
  if (!options.oblivious) return;
  check(exec.device.kind == DeviceKind::cpu, ErrorCode::unsupported, kOp,
        "got oblivious with tensors of a device, whose kernels are not proved data-oblivious; "
        "attend on the CPU");
  const bool is_fixed = options.rung != AttentionRung::automatic &&
                        options.rung != AttentionRung::exact &&
                        options.rung != AttentionRung::naive;
  check(
      is_fixed, ErrorCode::invalid_argument, kOp, "got oblivious with precision ",
      name_of(options.rung),
      options.rung == AttentionRung::automatic
          ? ", which looks at the numbers to choose; expected f32, bf16, f16, strict, balanced or "
            "fast"
          : ", which 'reference' computes and branches; expected f32, bf16, f16, strict, balanced "
            "or fast");
  check(!wants_bounds(options) && options.p_quantizer == nullptr && options.amaxes == nullptr,
        ErrorCode::invalid_argument, kOp,
        "got oblivious with bounds of the error, the largest S, P and O or a quantizer of P, which "
        "look at the numbers; leave them out");
}

void check_bounds(const AttentionCall& call, const Exec& exec) {
  const AttentionOptions& options = call.options;
  check(!options.certified || options.rung == AttentionRung::automatic, ErrorCode::invalid_argument,
        kOp, "got certified with precision ", name_of(options.rung),
        "; expected auto, which chooses by certified bounds then: ask for the bound of a rung "
        "instead");
  if (!options.certified && !wants_bounds(options)) return;
  check(exec.device.kind == DeviceKind::cpu, ErrorCode::unsupported, kOp,
        "got a certified bound of tensors on a device; expected tensors on the CPU: of the "
        "device's kernels none is derived");
  check(!options.dropout.exists(), ErrorCode::unsupported, kOp,
        "got a certified bound and dropout; expected a dropout probability of 0");
  check(options.rung != AttentionRung::naive, ErrorCode::unsupported, kOp,
        "got a certified bound of precision naive, which does not divide by the sum of what it "
        "multiplies; expected another precision");
  // Pages are gathered first, and the call that attends to them is refused if any is.
  if (wants_bounds(options) && !options.block_table.exists()) require_bounds(call, exec);
}

// All rows of every head.
std::vector<AttentionRange> heads_of(const AttentionCall& call) {
  std::vector<AttentionRange> all;
  for (std::int64_t batch = 0; batch < call.q.batches(); ++batch)
    for (std::int64_t head = 0; head < call.q.heads(); ++head)
      all.push_back({.batch = batch, .head = head, .first = 0, .count = call.q.rows()});
  return all;
}

// f64 from f32 of the same shape: all rows, or those that were asked for.
void widen_rows(const View& from, const View& to, std::span<const AttentionRange> ranges) {
  const AttentionOperand source = AttentionStack(Operand(from), kOp, "a copy").operand(),
                         target = AttentionStack(Operand(to), kOp, "the output").operand();
  for (const AttentionRange& range : ranges)
    for (std::int64_t row = range.first; row < range.first + range.count; ++row) {
      const Matrix left = source.at(range.batch, range.head).values,
                   right = target.at(range.batch, range.head).values;
      const auto* numbers = reinterpret_cast<const float*>(
          static_cast<const std::byte*>(left.data) + row * left.row_pitch);
      auto* into = static_cast<std::byte*>(right.data) + row * right.row_pitch;
      for (std::int64_t e = 0; e < left.cols; ++e) {
        const auto number = static_cast<double>(numbers[e]);
        std::memcpy(into + e * right.col_stride, &number, sizeof number);
      }
    }
}

void widen(const View& from, const View& to, const AttentionCall& call, const Exec& exec) {
  std::span<const AttentionRange> ranges = call.options.ranges;
  if (exec.device.kind == DeviceKind::cpu) {
    const std::vector<AttentionRange> all = heads_of(call);
    return widen_rows(from, to, ranges.empty() ? all : ranges);
  }
  check(ranges.empty(), ErrorCode::unsupported, kOp,
        "got ranges of rows and a float64 output on a device; expected float32, float16 or "
        "bfloat16, or all rows");
  const AttentionStack source(Operand(from), kOp, "a copy");
  run_attention_prepare(exec, call.options,
                        {.batches = source.batches(),
                         .heads = source.heads(),
                         .from = source.operand(),
                         .to = AttentionStack(Operand(to), kOp, "the output").operand()});
}

// One rung for every head.
void report_rung(const AttentionCall& call, AttentionRung rung, const std::string& explanation) {
  for (const AttentionRange& rows : heads_of(call))
    call.options.report->choices.push_back(
        {.rows = rows, .rung = rung, .tolerance = call.options.atol, .explanation = explanation});
}

}  // namespace

Shape attention_shape(const Operand& q, const Operand& k, const Operand& v) {
  const AttentionOptions options{};
  return AttentionCall(q, k, v, options, kOp).out_shape();
}

namespace {

// The rung of the options, or those that `auto` chooses.
void attend(const AttentionCall& call, const AttentionResult& result, const Exec& exec) {
  const AttentionOptions& options = call.options;
  if (options.certified) return attention_certified(call, result, exec);
  if (options.rung == AttentionRung::automatic) return attention_automatic(call, result, exec);
  const RungInputs inputs = rung_inputs(call, options.rung, exec);
  AttentionJob job = inputs.job;
  job.out = result.out;
  job.log_sum_exp = result.log_sum_exp;
  job.p_amax = result.p_amax;
  run_bounded(call, inputs, job, exec);
}

}  // namespace

void attention_into(const Operand& q, const Operand& k, const Operand& v, const View& out,
                    const AttentionOptions& options) {
  const FpEnvGuard guard;
  const AttentionCall call(q, k, v, options, kOp);
  check_result(out, call);
  const NamedView numbers[] = {{&options.log_sum_exp, "log_sum_exp"},
                               {&options.bound, "bound"},
                               {&options.probabilistic_bound, "probabilistic_bound"}};
  for (const NamedView& one : numbers)
    if (is_given(*one.view)) check_row_numbers(*one.view, call, one.name);
  std::vector<NamedView> views;
  call.add_views(views);
  for (const NamedView& input : views)
    check(element_count(input.view->shape) == 0 || call.is_empty() ||
              !bytes_overlap(*input.view, out),
          ErrorCode::invalid_argument, kOp, "the output shares memory with ", input.name,
          ", which is still read while parts of the output are written; give other memory");
  views.push_back({&out, "the output"});
  for (const NamedView& one : numbers)
    if (is_given(*one.view)) views.push_back(one);
  const Exec exec = make_exec_on(views, call.work(), options, kOp);
  if (options.report != nullptr) *options.report = {};
  if (options.amaxes != nullptr) *options.amaxes = {};
  if (call.is_empty()) return;
  check_places(call, exec);
  check_bounds(call, exec);
  check_amaxes(call, exec);
  check_oblivious(call, exec);
  if (options.block_table.exists() && exec.device.kind == DeviceKind::cpu)
    return attend_pages(call, out);
  if (options.rung == AttentionRung::automatic && is_beyond_f32(call, exec)) {
    AttentionOptions exact = options;
    exact.rung = AttentionRung::exact;
    exact.certified = false;
    attention_into(q, k, v, out, exact);
    if (options.report != nullptr)
      report_rung(call, AttentionRung::exact,
                  "float64 holds numbers, or scores of them, that float32 does not have");
    return;
  }
  if (options.rung == AttentionRung::automatic && options.dropout.exists()) {
    AttentionOptions whole = options;
    whole.rung = AttentionRung::f32;
    attention_into(q, k, v, out, whole);
    if (options.report != nullptr)
      report_rung(call, AttentionRung::f32, "the error model does not cover dropout");
    return;
  }
  if (out.dtype == DType::f64 && options.rung != AttentionRung::exact) {
    const Tensor narrow = temporary_values(exec, out.shape, DType::f32);
    attention_into(q, k, v, narrow.view(), options);
    widen(narrow.view(), out, call, exec);
    return;
  }

  Tensor largest_p;
  AttentionResult result{.out = AttentionStack(Operand(out), kOp, "the output").operand(),
                         .log_sum_exp = static_cast<float*>(options.log_sum_exp.data)};
  if (options.p_quantizer != nullptr || options.amaxes != nullptr) {
    largest_p = temporary_values(exec, {1}, DType::f32);
    result.p_amax = static_cast<float*>(largest_p.view().data);
    clear_memory(exec, result.p_amax, sizeof(float));
  }
  attend(call, result, exec);
  if (options.p_quantizer != nullptr)
    options.p_quantizer->calibrate(largest_p.view(), {.stream = options.stream});
  if (options.amaxes == nullptr) return;
  const QuantizeOptions how{.threads = options.threads, .backend = options.backend};
  *options.amaxes = {.s = score_amax(call), .p = *result.p_amax, .o = amax(out, how)};
}

Tensor attention(const Operand& q, const Operand& k, const Operand& v,
                 const AttentionOptions& options) {
  const Shape shape = AttentionCall(q, k, v, options, kOp).out_shape();
  const Device device = q.quantized() != nullptr ? q.quantized()->device() : q.values().device;
  Tensor out = values_on(device, shape, type_of_result(q, options), options.stream);
  attention_into(q, k, v, out.view(), options);
  return out;
}

QuantizedTensor attention_quantized(const Operand& q, const Operand& k, const Operand& v,
                                    Quantizer& o, const AttentionOptions& options) {
  AttentionOptions wide = options;
  wide.out = DType::f32;
  const Tensor out = attention(q, k, v, wide);
  return o.quantize(out.view(), quantize_options(options));
}

QuantizedTensor attention_quantized(const Operand& q, const Operand& k, const Operand& v,
                                    const Scaling& scaling, const AttentionOptions& options) {
  AttentionOptions wide = options;
  wide.out = DType::f32;
  const Tensor out = attention(q, k, v, wide);
  return quantize(out.view(), scaling, quantize_options(options));
}

namespace {

constexpr std::array<std::string_view, 9> kNames = {"exact",    "f32",  "bf16",  "f16", "strict",
                                                    "balanced", "fast", "naive", "auto"};

}  // namespace

std::string_view name_of(AttentionRung rung) { return kNames[static_cast<std::size_t>(rung)]; }

AttentionRung parse_attention_rung(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<AttentionRung>(i);
  fail(ErrorCode::invalid_argument, kOp, "got precision '", shown(name),
       "'; expected auto, exact, f32, bf16, f16, strict, balanced, fast or naive");
}

}  // namespace octavo
