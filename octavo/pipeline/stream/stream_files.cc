#include "octavo/pipeline/stream/stream_files_internal.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/base/file/permissions.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/gguf/gguf_writer.h"
#include "octavo/pipeline/stream/source_deletion_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";
// Shared by two files: the next one begins while the last row blocks of one are in progress.
constexpr std::uint64_t kMaxWriteBehind = 32ULL << 20;
// Weights are readable for no more people than the source's are; their owner reads and writes them.
constexpr unsigned kOwner = 0600;
constexpr std::uint64_t kLeastMemory = 16ULL << 20;

}  // namespace

std::uint64_t write_behind_memory(std::uint64_t max_memory) {
  return std::min(kMaxWriteBehind, max_memory / 4);
}

bool is_measured(const TensorAction& action, const QuantizeCheckpointOptions& options) {
  return action.quantize && !action.found && options.measure;
}

PlannedFile planned_file(const QuantizePlan& plan, const std::vector<std::size_t>& actions) {
  PlannedFile out;
  std::vector<QuantizedWeight> weights;
  for (const std::size_t i : actions) {
    for (const DialectTensor& output : plan.actions[i].outputs) out.tensors.push_back(output.plan);
    if (plan.actions[i].quantize) weights.push_back(plan.actions[i].weight);
  }
  out.metadata = metadata_of(plan.options.target, weights);
  return out;
}

StreamFiles::StreamFiles(const CheckpointReader& source, const QuantizePlan& plan,
                         const QuantizeCheckpointOptions& options, const Destination& destination,
                         std::vector<ActionResult>& results)
    : source_(source),
      plan_(plan),
      options_(options),
      destination_(destination),
      source_at_start_(destination.source.empty() ? source_identity(source) : destination.source),
      results_(results),
      files_(plan.files.size()) {
  for (std::size_t i = 0; i < plan.actions.size(); ++i)
    files_[plan.actions[i].file].actions.push_back(i);
  take_up_finished();
}

void StreamFiles::take_up_finished() {
  if (destination_.folder == nullptr || destination_.share != nullptr) return;
  for (std::size_t i = 0; i < files_.size(); ++i)
    files_[i].finished =
        restore_results(destination_.folder->finished(plan_.files[i]), files_[i].actions, results_);
  if (!source_.deleted_shards().empty()) {
    std::vector<bool> finished;
    for (const OutputFile& file : files_) finished.push_back(file.finished);
    check_deleted_shards(source_, plan_, finished);
  }
  if (destination_.deletion == nullptr) return;
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (files_[i].finished) destination_.deletion->file_was_finished(i, path_of(i));
}

bool restore_results(const Json& kept, const std::vector<std::size_t>& actions,
                     std::vector<ActionResult>& results) {
  const std::vector<Json>& tensors = kept["tensors"].elements();
  if (kept.is_null() || tensors.size() != actions.size()) return false;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    ActionResult& result = results[actions[k]];
    result.content =
        std::strtoull(std::string(tensors[k]["content"].string_or("0")).c_str(), nullptr, 16);
    result.found = {tensors[k]["nan"].integer_or(0), tensors[k]["inf"].integer_or(0)};
    if (tensors[k].has("error"))
      result.error = TensorError::restored(tensors[k]["error"].string_or(""));
  }
  return true;
}

Json kept_result(const ActionResult& result, bool measured) {
  Json kept;
  kept.set("content", hex_of(result.content));
  kept.set("nan", result.found.nan);
  kept.set("inf", result.found.inf);
  if (measured) kept.set("error", result.error.kept());
  return kept;
}

int threads_within_memory(const CheckpointReader& source, const QuantizePlan& plan,
                          const QuantizeCheckpointOptions& options,
                          const std::vector<RowBlock>& row_blocks) {
  check(options.max_memory >= kLeastMemory, ErrorCode::invalid_argument, kOp,
        "got max_memory = ", options.max_memory, "; expected at least ", kLeastMemory);
  check(options.threads >= 0 && options.threads <= kMaxThreads, ErrorCode::invalid_argument, kOp,
        "got threads = ", options.threads, "; expected 0 (all) to ", kMaxThreads);
  const int wanted = options.threads == 0 ? available_threads() : options.threads;
  const std::uint64_t each = std::max<std::uint64_t>(1, row_block_memory(source, plan, row_blocks));
  const std::uint64_t fit = (options.max_memory - write_behind_memory(options.max_memory)) / each;
  check(fit > 0, ErrorCode::invalid_argument, kOp, "a row block needs ", each,
        " bytes and max_memory is ", options.max_memory, "; raise it");
  return static_cast<int>(std::min<std::uint64_t>(fit, static_cast<std::uint64_t>(wanted)));
}

void StreamFiles::check_room() const {
  if (destination_.folder == nullptr) return;  // a single file reserves its own space
  std::vector<std::uint64_t> bytes(files_.size(), 0);
  for (const TensorAction& action : plan_.actions)
    if (is_to_do(action.file)) bytes[action.file] += bytes_after(action);
  // Where shards of the source make room, two files have to fit: one begins while the last row
  // blocks of another are in progress.
  std::sort(bytes.begin(), bytes.end(), std::greater<>());
  if (destination_.deletion != nullptr && bytes.size() > 2) bytes.resize(2);
  destination_.folder->check_room(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}));
}

void StreamFiles::finish_empty() {
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (is_to_do(i) && files_[i].row_blocks_left == 0) finish(i);
}

safetensors::FileWriter& StreamFiles::writer_of(std::size_t index) {
  OutputFile& file = files_[index];
  const std::lock_guard lock(opening_);
  if (file.writer == nullptr) file.writer = open(index);
  return *file.writer;
}

std::unique_ptr<safetensors::FileWriter> StreamFiles::open(std::size_t index) const {
  PlannedFile planned = planned_file(plan_, files_[index].actions);
  safetensors::WriteOptions options{.metadata = std::move(planned.metadata),
                                    .write_behind = write_behind_memory(options_.max_memory) / 2,
                                    .sum = destination_.folder != nullptr};
  for (const auto& reader : source_.files()) {
    options.sources.push_back(reader.path());
    options.mode &= kOwner | permissions_of(reader.path());
  }
  if (plan_.gguf != nullptr) return open_gguf(options);
  return std::make_unique<safetensors::FileWriter>(path_of(index), std::move(planned.tensors),
                                                   options);
}

std::unique_ptr<safetensors::FileWriter> StreamFiles::open_gguf(
    const safetensors::WriteOptions& options) const {
  std::vector<gguf::PlacedTensor> tensors;
  const auto place = [&](const DialectTensor& output) {
    tensors.push_back(
        {.type = output.block_type,
         .entry = {
             .name = output.plan.name, .type = output.plan.type, .shape = output.plan.shape}});
  };
  for (const DialectTensor& output : plan_.gguf->constants) place(output);
  for (const TensorAction& action : plan_.actions) place(action.outputs.front());
  gguf::Layout layout = gguf::lay_out(plan_.gguf->metadata, plan_.gguf->keys, std::move(tensors));
  auto writer = std::make_unique<safetensors::FileWriter>(path_of(0), std::move(layout.header),
                                                          layout.first_bytes, options);
  for (const DialectTensor& output : plan_.gguf->constants)
    writer->write(writer->at(output.plan.name), 0,
                  std::as_bytes(std::span<const char>(output.constant)));
  return writer;
}

std::string StreamFiles::path_of(std::size_t index) const {
  return destination_.folder != nullptr ? destination_.folder->path_of(plan_.files[index])
                                        : destination_.file;
}

// A source that changes while it is read would give a mix of both contents.
void StreamFiles::check_source() const {
  check(source_identity(source_) == source_at_start_, ErrorCode::invalid_argument, kOp,
        "the source '", shown(source_.path(), 200),
        "' was changed while it was read; expected one that stays; start again when it is whole");
}

// After the last byte went to disk, which may take long: what is left is a rename.
void StreamFiles::check_is_mine(std::size_t index) const {
  const FileShare* const share = destination_.share;
  check(share == nullptr || !share->is_still_mine || share->is_still_mine(), ErrorCode::unsupported,
        kOp, "another process has '", shown(plan_.files[index], 160),
        "' in work: this one gave no sign of life for long; it is left to that one");
}

void StreamFiles::row_block_is_done(std::size_t index) {
  bool last = false;
  {
    const std::lock_guard lock(counting_);
    last = --files_[index].row_blocks_left == 0;
  }
  if (last) finish(index);
}

void StreamFiles::finish(std::size_t index) {
  check_source();
  if (destination_.is_nowhere()) return;
  safetensors::FileWriter& writer = writer_of(index);
  writer.flush();
  check_is_mine(index);
  writer.finish();
  const std::string state =
      destination_.deletion == nullptr ? std::string() : content_state_of(writer.header());
  const std::uint64_t sum = writer.written_checksum();
  OutputFile& file = files_[index];
  const std::lock_guard lock(counting_);
  file.writer.reset();
  file.finished = true;
  if (is_recorded())
    destination_.folder->note_finished(
        plan_.files[index], sum, file.actions.size(), [&](std::size_t i) {
          const std::size_t action = file.actions[i];
          return kept_result(results_[action], is_measured(plan_.actions[action], options_));
        });
  else if (destination_.folder != nullptr)
    destination_.folder->note_written(plan_.files[index], sum);
  if (destination_.deletion != nullptr)
    destination_.deletion->file_is_finished(index, path_of(index), state, hex_of(sum));
  return_freed_memory();
}

}  // namespace octavo
