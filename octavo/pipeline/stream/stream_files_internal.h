// The files of an output while bands go into them: opened when the first comes, finished behind the
// last, noted in the folder's record.
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
  // `results` are those of the plan's actions, here and in all that follows. Files that an earlier
  // call finished are taken up, with what it found out about their tensors.
  StreamFiles(const CheckpointReader& source, const QuantizePlan& plan,
              const QuantizeCheckpointOptions& options, const Destination& destination,
              std::vector<ActionResult>& results);

  [[nodiscard]] bool is_finished(std::size_t file) const { return files_[file].finished; }
  // Throws Error(io) unless the disk has room for what is not finished.
  void check_room() const;

  void expect_row_block(std::size_t file) { ++files_[file].row_blocks_left; }
  void finish_empty();  // those that no band is expected for
  // From any thread, for a band that was expected.
  [[nodiscard]] safetensors::FileWriter& writer_of(std::size_t file);
  // Behind its last write. With a file's last band the file gets its name.
  void row_block_is_done(std::size_t file);

 private:
  struct OutputFile {
    std::unique_ptr<safetensors::FileWriter> writer{};
    std::size_t row_blocks_left = 0;
    std::vector<std::size_t> actions{};
    bool finished = false;
  };

  void take_up_finished();
  void finish(std::size_t index);
  [[nodiscard]] Json kept_of(std::size_t action) const;  // for the record
  [[nodiscard]] std::unique_ptr<safetensors::FileWriter> open(std::size_t index) const;
  [[nodiscard]] std::string path_of(std::size_t index) const;
  // With one file there is nothing left to do when it is finished that would be worth a record.
  [[nodiscard]] bool is_recorded() const {
    return destination_.folder != nullptr && plan_.files.size() > 1;
  }
  void check_source() const;

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  const QuantizeCheckpointOptions& options_;
  const Destination& destination_;
  std::string source_at_start_;
  std::vector<ActionResult>& results_;
  std::vector<OutputFile> files_;
  std::mutex counting_, opening_;
};

// What a file with these actions of a plan says of itself.
struct PlannedFile {
  std::vector<safetensors::TensorPlan> tensors;
  safetensors::Metadata metadata;
};
[[nodiscard]] PlannedFile planned_file(const QuantizePlan& plan,
                                       const std::vector<std::size_t>& actions);

// Of max_memory, for bytes on their way to the disk.
[[nodiscard]] std::uint64_t write_behind_memory(std::uint64_t max_memory);

// Is the error of an action's codes measured?
[[nodiscard]] bool is_measured(const TensorAction& action,
                               const QuantizeCheckpointOptions& options);

}  // namespace octavo
