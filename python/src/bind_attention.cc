// Attention and the KV cache. The caller keeps the memory of all views and operands alive until a
// call returns.
#include "octavo/ops/attention/attention.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "bind.h"
#include "gemm_operand.h"
#include "octavo/nn/kv_cache.h"

namespace octavo::python {
namespace {

using Lengths = std::vector<std::int64_t>;

struct Mask {
  bool causal = false, bottom_right = false;
  std::int64_t left = -1, right = -1;
  Lengths query_lengths{}, key_lengths{};
  std::optional<View> bias{};
};

// Integers in the memory of K: the address of a block table, its rows and columns and the entries
// from one row to the next; or nothing.
using TableArgument = std::tuple<std::uintptr_t, std::int64_t, std::int64_t, std::int64_t>;

BlockTable table_of(const std::optional<TableArgument>& argument) {
  if (!argument) return {};
  const auto& [address, batches, columns, pitch] = *argument;
  return {.blocks = reinterpret_cast<const std::int32_t*>(address),
          .batches = batches,
          .columns = columns,
          .pitch = pitch};
}

// What scores go through.
struct Logits {
  std::optional<double> softmax_scale{};
  double soft_cap = 0.0;
  std::optional<View> sinks{};
};

// Refers to the mask's lengths.
AttentionOptions options_of(const std::string& precision, double rtol, double atol,
                            const Mask& mask, const Logits& logits, int threads,
                            std::uintptr_t stream, const AttentionDropout& dropout = {}) {
  return {.rung = parse_attention_rung(precision),
          .rtol = rtol,
          .atol = atol,
          .mask = {.causal = mask.causal,
                   .bottom_right = mask.bottom_right,
                   .left = mask.left,
                   .right = mask.right,
                   .query_lengths = mask.query_lengths,
                   .key_lengths = mask.key_lengths,
                   .bias = mask.bias.value_or(View{})},
          .softmax_scale = logits.softmax_scale,
          .soft_cap = logits.soft_cap,
          .sinks = logits.sinks.value_or(View{}),
          .dropout = dropout,
          .threads = threads,
          .stream = stream_of(stream)};
}

using Choice = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::string,
                          double, double, double, std::string>;

using Amaxes = std::tuple<float, float, float>;
std::tuple<std::vector<Choice>, std::int64_t, Amaxes> tuple_of(const AttentionReport& report,
                                                               const AttentionAmaxes& amaxes) {
  std::vector<Choice> choices;
  for (const AttentionChoice& choice : report.choices)
    choices.emplace_back(choice.rows.batch, choice.rows.head, choice.rows.first, choice.rows.count,
                         std::string(name_of(choice.rung)), choice.n_eff, choice.predicted,
                         choice.tolerance, choice.explanation);
  return {choices, report.redone, {amaxes.s, amaxes.p, amaxes.o}};
}

void bind_cache(nb::module_& module) {
  nb::class_<KvCache>(module, "KvCache")
      .def(
          "__init__",
          [](KvCache* self, std::int64_t batches, std::int64_t kv_heads, std::int64_t head_size,
             std::int64_t value_size, const Scaling& k, const Scaling& v, std::int64_t capacity,
             int cuda, std::int64_t page_tokens) {
            const Device device =
                cuda < 0 ? Device{} : Device{.kind = DeviceKind::cuda, .index = cuda};
            new (self) KvCache(batches, kv_heads, head_size, value_size,
                               {.k = k,
                                .v = v,
                                .capacity = capacity,
                                .device = device,
                                .page_tokens = page_tokens});
          },
          nb::arg("batches"), nb::arg("kv_heads"), nb::arg("head_size"), nb::arg("value_size"),
          nb::arg("k"), nb::arg("v"), nb::arg("capacity"), nb::arg("cuda") = -1,
          nb::arg("page_tokens") = 0)
      .def(
          "append",
          [](KvCache& self, const View& k, const View& v, const Lengths& counts,
             std::uintptr_t stream) { self.append(k, v, counts, stream_of(stream)); },
          nb::arg("k"), nb::arg("v"), nb::arg("counts"), nb::arg("stream") = 0)
      .def(
          "reserve",
          [](KvCache& self, std::int64_t tokens, std::uintptr_t stream) {
            self.reserve(tokens, stream_of(stream));
          },
          nb::arg("tokens"), nb::arg("stream") = 0)
      .def(
          "attend",
          [](const KvCache& self, const OperandArgument& q, const View& target,
             const std::string& precision, double rtol, double atol, std::int64_t left,
             const std::optional<double>& softmax_scale, double soft_cap,
             const std::optional<View>& sinks, bool oblivious, int threads, std::uintptr_t stream) {
            AttentionOptions options =
                options_of(precision, rtol, atol, {.left = left}, {softmax_scale, soft_cap, sinks},
                           threads, stream);
            options.oblivious = oblivious;
            self.attend_into(operand_of(q), target, options);
          },
          nb::arg("q"), nb::arg("target"), nb::arg("precision"), nb::arg("rtol"), nb::arg("atol"),
          nb::arg("left"), nb::arg("softmax_scale").none(), nb::kw_only(),
          nb::arg("soft_cap") = 0.0, nb::arg("sinks").none() = nb::none(),
          nb::arg("oblivious") = false, nb::arg("threads") = 0, nb::arg("stream") = 0)
      .def(
          "append_codes",
          [](KvCache& self, const QuantizedTensor& k, const QuantizedTensor& v,
             const Lengths& counts) { self.append(k, v, counts); },
          nb::arg("k"), nb::arg("v"), nb::arg("counts"),
          "Tokens that are codes with the scalings of this cache.")
      .def(
          "copy", [](const KvCache& self) { return KvCache(self); }, "With memory of its own.")
      .def(
          "keys",
          [](const KvCache& self) { return std::make_shared<QuantizedTensor>(self.key_tokens()); },
          "A copy of the keys there are.")
      .def(
          "values",
          [](const KvCache& self) {
            return std::make_shared<QuantizedTensor>(self.value_tokens());
          },
          "A copy of the values there are.")
      .def(
          "clear", [](KvCache& self, std::uintptr_t stream) { self.clear(stream_of(stream)); },
          nb::arg("stream") = 0)
      .def(
          "truncate",
          [](KvCache& self, std::int64_t batch, std::int64_t length, std::uintptr_t stream) {
            self.truncate(batch, length, stream_of(stream));
          },
          nb::arg("batch"), nb::arg("length"), nb::arg("stream") = 0)
      .def_prop_ro(
          "lengths",
          [](const KvCache& self) { return Lengths(self.lengths().begin(), self.lengths().end()); })
      .def_prop_ro("capacity", &KvCache::capacity)
      .def_prop_ro("nbytes", &KvCache::nbytes)
      .def_prop_ro("value_size", [](const KvCache& self) { return self.values().shape[3]; });
}

}  // namespace

void bind_attention(nb::module_& module) {
  module.def(
      "attention_shape",
      [](const OperandArgument& q, const OperandArgument& k, const OperandArgument& v) {
        return list_of(attention_shape(operand_of(q), operand_of(k), operand_of(v)));
      },
      nb::arg("q"), nb::arg("k"), nb::arg("v"), "Of the result, checked.");
  module.def(
      "attention",
      [](const OperandArgument& q, const OperandArgument& k, const OperandArgument& v,
         const View& target, const std::string& precision, double rtol, double atol, bool causal,
         bool bottom_right, std::int64_t left, std::int64_t right, const Lengths& query_lengths,
         const Lengths& key_lengths, const std::optional<double>& softmax_scale,
         const std::optional<View>& log_sum_exp, const std::optional<View>& bias, double soft_cap,
         const std::optional<View>& sinks, int threads, std::uintptr_t stream, double dropout,
         std::uint64_t seed, const std::optional<TableArgument>& block_table,
         std::uintptr_t device_key_lengths, bool certified, const std::optional<View>& bound,
         const std::optional<View>& probabilistic_bound, bool find_amaxes, bool oblivious) {
        const Mask mask{causal, bottom_right, left, right, query_lengths, key_lengths, bias};
        AttentionOptions options =
            options_of(precision, rtol, atol, mask, {softmax_scale, soft_cap, sinks}, threads,
                       stream, {dropout, seed});
        AttentionReport report;
        AttentionAmaxes amaxes;
        options.report = &report;
        if (find_amaxes) options.amaxes = &amaxes;
        options.log_sum_exp = log_sum_exp.value_or(View{});
        options.bound = bound.value_or(View{});
        options.probabilistic_bound = probabilistic_bound.value_or(View{});
        options.certified = certified;
        options.oblivious = oblivious;
        options.block_table = table_of(block_table);
        options.mask.device_key_lengths = reinterpret_cast<const std::int64_t*>(device_key_lengths);
        {
          const nb::gil_scoped_release released;
          attention_into(operand_of(q), operand_of(k), operand_of(v), target, options);
        }
        return tuple_of(report, amaxes);
      },
      nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("target"), nb::arg("precision"),
      nb::arg("rtol"), nb::arg("atol"), nb::arg("causal"), nb::arg("bottom_right"), nb::arg("left"),
      nb::arg("right"), nb::arg("query_lengths"), nb::arg("key_lengths"),
      nb::arg("softmax_scale").none(), nb::arg("log_sum_exp").none(),
      nb::arg("bias").none() = nb::none(), nb::kw_only(), nb::arg("soft_cap") = 0.0,
      nb::arg("sinks").none() = nb::none(), nb::arg("threads") = 0, nb::arg("stream") = 0,
      nb::arg("dropout") = 0.0, nb::arg("seed") = 0, nb::arg("block_table").none() = nb::none(),
      nb::arg("device_key_lengths") = 0, nb::arg("certified") = false,
      nb::arg("bound").none() = nb::none(), nb::arg("probabilistic_bound").none() = nb::none(),
      nb::arg("find_amaxes") = false, nb::arg("oblivious") = false,
      "softmax(scale Q K^T) V into a view of values; what 'auto' chose, and rows done again; the "
      "largest "
      "S, P and O.");
  module.def(
      "attention_backward",
      [](const OperandArgument& q, const OperandArgument& k, const OperandArgument& v,
         const View& d_out, const View& d_q, const View& d_k, const View& d_v,
         const std::string& precision, bool causal, bool bottom_right, std::int64_t left,
         std::int64_t right, const Lengths& query_lengths, const Lengths& key_lengths,
         const std::optional<double>& softmax_scale, const std::optional<View>& bias,
         const std::optional<View>& out, const std::optional<View>& log_sum_exp, double soft_cap,
         const std::optional<View>& sinks, const std::optional<View>& d_sinks, int threads,
         std::uintptr_t stream, double dropout, std::uint64_t seed) {
        const Mask mask{causal, bottom_right, left, right, query_lengths, key_lengths, bias};
        const AttentionOptions options =
            options_of(precision, 5e-3, 5e-3, mask, {softmax_scale, soft_cap, sinks}, threads,
                       stream, {dropout, seed});
        const nb::gil_scoped_release released;
        attention_backward_into(
            operand_of(q), operand_of(k), operand_of(v), d_out, d_q, d_k, d_v, options,
            {.out = out.value_or(View{}), .log_sum_exp = log_sum_exp.value_or(View{})},
            d_sinks.value_or(View{}));
      },
      nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("d_out"), nb::arg("d_q"), nb::arg("d_k"),
      nb::arg("d_v"), nb::arg("precision"), nb::arg("causal"), nb::arg("bottom_right"),
      nb::arg("left"), nb::arg("right"), nb::arg("query_lengths"), nb::arg("key_lengths"),
      nb::arg("softmax_scale").none(), nb::arg("bias").none() = nb::none(),
      nb::arg("out").none() = nb::none(), nb::arg("log_sum_exp").none() = nb::none(), nb::kw_only(),
      nb::arg("soft_cap") = 0.0, nb::arg("sinks").none() = nb::none(),
      nb::arg("d_sinks").none() = nb::none(), nb::arg("threads") = 0, nb::arg("stream") = 0,
      nb::arg("dropout") = 0.0, nb::arg("seed") = 0,
      "Gradients into views of the shapes of Q, K and V, and of the sinks.");
  bind_cache(module);
}

}  // namespace octavo::python
