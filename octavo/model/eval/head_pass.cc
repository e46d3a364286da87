#include "octavo/model/eval/head_pass_internal.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "octavo/base/thread_pool.h"
#include "octavo/nn/product_input_internal.h"
#include "octavo/ops/gemm.h"

namespace octavo::eval {
namespace {

constexpr std::int64_t kRowsOfPart = 16;

void norm_all(const WalkedModel& model) {
  Tensor buffer;
  for (std::int64_t first = 0; first < model.hidden->rows(); first += kHeadRows) {
    const std::int64_t count = std::min(kHeadRows, model.hidden->rows() - first);
    const View rows = model.hidden->fetch(first, count, buffer);
    model.model->final_norm(rows);
    model.hidden->keep(first, rows);
  }
}

void cap_logits(float* logits, std::int64_t count, double cap) {
  for (std::int64_t i = 0; i < count; ++i)
    logits[i] = static_cast<float>(cap * std::tanh(static_cast<double>(logits[i]) / cap));
}

// Logits of some rows with a block of each model's head.
class LogitBlock {
 public:
  LogitBlock(const LayerWalk& walk, int threads) : walk_(walk), threads_(threads) {
    logits_.resize(walk.models.size());
    buffers_.resize(walk.models.size());
    weights_.resize(walk.models.size());
    for (const WalkedModel& model : walk.models) inputs_.push_back(model.model->head_input());
  }

  void load(std::int64_t first, std::int64_t count) {
    first_id_ = first;
    ids_ = count;
    for (std::size_t model = 0; model < weights_.size(); ++model) {
      weights_[model] = {};  // before the next: one block at a time
      weights_[model] = walk_.models[model].model->load_head(first, count);
      logits_[model] = Tensor::values({kHeadRows, count}, DType::f32);
    }
  }

  void multiply(std::int64_t first, std::int64_t rows) {
    for (std::size_t model = 0; model < weights_.size(); ++model) {
      const ProductInput hidden(inputs_[model],
                                walk_.models[model].hidden->fetch(first, rows, buffers_[model]),
                                {.threads = threads_});
      const LinearWeight& weight = weights_[model];
      const Operand head = weight.codes ? Operand(*weight.codes) : Operand(weight.values);
      gemm_into(hidden.operand(), head,
                value_view(logits_[model].view().data, DType::f32, {rows, ids_}),
                {.accumulator = Accumulator::f32, .threads = threads_});
    }
  }

  void add_to(std::vector<std::vector<TokenSums>>& sums, std::int64_t first, std::int64_t rows,
              bool against_first) const {
    const auto parts = static_cast<int>((rows + kRowsOfPart - 1) / kRowsOfPart);
    parallel_for(parts, threads_, [&](int part) {
      std::vector<const float*> logits(logits_.size());
      std::vector<TokenSums*> of_row(logits_.size());
      const std::int64_t begin = part * kRowsOfPart, end = std::min(rows, begin + kRowsOfPart);
      for (std::int64_t row = begin; row < end; ++row) {
        const auto at = static_cast<std::size_t>(first + row);
        for (std::size_t model = 0; model < logits.size(); ++model) {
          float* const data = static_cast<float*>(logits_[model].view().data) + row * ids_;
          const double cap = walk_.models[model].model->shape().logits_cap;
          if (cap > 0.0) cap_logits(data, ids_, cap);
          logits[model] = data;
          of_row[model] = &sums[model][at];
        }
        add_logits(logits, of_row, first_id_, ids_, walk_.windows->targets[at], against_first);
      }
    });
  }

 private:
  const LayerWalk& walk_;
  int threads_;
  std::int64_t first_id_ = 0, ids_ = 0;
  std::vector<InputQuantization> inputs_;
  std::vector<LinearWeight> weights_;
  std::vector<Tensor> logits_, buffers_;
};

}  // namespace

std::vector<std::vector<TokenSums>> head_pass(const LayerWalk& walk, bool against_first,
                                              int threads) {
  const std::int64_t rows = walk.windows->rows();
  const std::int64_t vocabulary = walk.models[0].model->shape().vocabulary;
  std::int64_t bytes = 0;
  for (const WalkedModel& model : walk.models) {
    norm_all(model);
    bytes += head_weight_nbytes(*model.model);
  }
  std::vector<std::vector<TokenSums>> sums(walk.models.size(),
                                           std::vector<TokenSums>(static_cast<std::size_t>(rows)));
  LogitBlock block(walk, threads);
  for (std::int64_t id = 0; id < vocabulary; id += kHeadBlock) {
    const std::int64_t ids = std::min(kHeadBlock, vocabulary - id);
    block.load(id, ids);
    for (std::int64_t row = 0; row < rows; row += kHeadRows) {
      const std::int64_t count = std::min(kHeadRows, rows - row);
      block.multiply(row, count);
      block.add_to(sums, row, count, against_first);
      walk.progress->show(bytes, id * rows + ids * (row + count), vocabulary * rows, "the head");
    }
  }
  walk.progress->finish(bytes);
  return sums;
}

std::int64_t head_nbytes(std::span<const EvalModel* const> models) {
  std::int64_t bytes = 0;
  for (const EvalModel* model : models) {
    const std::int64_t ids = std::min(kHeadBlock, model->shape().vocabulary);
    bytes += 4 * (ids * model->shape().hidden + kHeadRows * (ids + model->shape().hidden));
  }
  return bytes;
}

// As the layers count: two bytes a weight are what most files have.
std::int64_t head_weight_nbytes(const EvalModel& model) {
  return 2 * model.shape().vocabulary * model.shape().hidden;
}

}  // namespace octavo::eval
