// The output files while row blocks are written into them: opened with the first row block,
// finished after the last, recorded in the folder's progress record.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/safetensors/file_writer.h"

namespace octavo {

class StreamFiles {
 public:
  // `results` are indexed like the plan's actions, here and below. Files that an earlier call
  // finished are reused, with the recorded results of their tensors.
  StreamFiles(const CheckpointReader& source, const QuantizePlan& plan,
              const QuantizeCheckpointOptions& options, const Destination& destination,
              std::vector<ActionResult>& results);

  [[nodiscard]] bool is_finished(std::size_t file) const { return files_[file].finished; }
  // Throws Error(io) unless the disk has space for the unfinished files.
  void check_room() const;

  void expect_row_block(std::size_t file) { ++files_[file].row_blocks_left; }
  void finish_empty();  // files without row blocks, of this share
  // From any thread, for an expected row block.
  [[nodiscard]] safetensors::FileWriter& writer_of(std::size_t file);
  // After a row block's last write. A file's last row block finishes the file and renames it into
  // place.
  void row_block_is_done(std::size_t file);

 private:
  struct OutputFile {
    std::unique_ptr<safetensors::FileWriter> writer{};
    std::size_t row_blocks_left = 0;
    std::vector<std::size_t> actions{};
    bool finished = false;
  };

  void take_up_finished();
  [[nodiscard]] bool is_to_do(std::size_t file) const {
    return !files_[file].finished &&
           (destination_.share == nullptr || destination_.share->file == file);
  }
  void finish(std::size_t index);
  [[nodiscard]] std::unique_ptr<safetensors::FileWriter> open(std::size_t index) const;
  [[nodiscard]] std::unique_ptr<safetensors::FileWriter> open_gguf(
      const safetensors::WriteOptions& options) const;
  [[nodiscard]] std::string path_of(std::size_t index) const;
  // A single file needs no record, unless shards of the source go: when it is finished nothing is
  // left to do.
  [[nodiscard]] bool is_recorded() const {
    return destination_.folder != nullptr &&
           (plan_.files.size() > 1 || destination_.share != nullptr ||
            destination_.deletion != nullptr);
  }
  void check_source() const;
  void check_is_mine(std::size_t index) const;

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  const QuantizeCheckpointOptions& options_;
  const Destination& destination_;
  std::string source_at_start_;
  std::vector<ActionResult>& results_;
  std::vector<OutputFile> files_;
  std::mutex counting_, opening_;
};

// The header of a file with these actions of a plan.
struct PlannedFile {
  std::vector<safetensors::TensorPlan> tensors;
  safetensors::Metadata metadata;
};
[[nodiscard]] PlannedFile planned_file(const QuantizePlan& plan,
                                       const std::vector<std::size_t>& actions);

// The part of max_memory for write-behind buffers.
[[nodiscard]] std::uint64_t write_behind_memory(std::uint64_t max_memory);

// As many threads as are asked for, and as have room for a row block each.
[[nodiscard]] int threads_within_memory(const CheckpointReader& source, const QuantizePlan& plan,
                                        const QuantizeCheckpointOptions& options,
                                        const std::vector<RowBlock>& row_blocks);

// An action's result as a record keeps it, and read again. False: the record is not of these
// actions.
[[nodiscard]] Json kept_result(const ActionResult& result, bool measured);
[[nodiscard]] bool restore_results(const Json& kept, const std::vector<std::size_t>& actions,
                                   std::vector<ActionResult>& results);

// True if the action's quantization error is measured.
[[nodiscard]] bool is_measured(const TensorAction& action,
                               const QuantizeCheckpointOptions& options);

}  // namespace octavo
