#include "octavo/pipeline/stream/shared_amaxes_internal.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/file/shard_groups_internal.h"
#include "octavo/pipeline/stream/amaxes_internal.h"
#include "octavo/pipeline/stream/stream_files_internal.h"
#include "octavo/pipeline/stream/work_loop_internal.h"

namespace octavo {
namespace {

std::string sum_of(const Json& amaxes) { return hex_of(text_hash(amaxes.dump(0))); }

}  // namespace

SharedAmaxes::SharedAmaxes(const CheckpointReader& source, const QuantizePlan& plan,
                           const SharedFolder& folder)
    : source_(source),
      plan_(plan),
      folder_(folder),
      across_(groups_across_files(plan)),
      needs_(amax_files(plan)) {}

Json SharedAmaxes::find(std::size_t file, const QuantizeCheckpointOptions& options) const {
  std::vector<RowBlock> row_blocks;
  std::uint64_t total = 0;
  const auto bytes_of = [&](const RowBlock& row_block) {
    return static_cast<std::uint64_t>(
        row_block.rows * row_layout(source_, plan_.actions[row_block.action]).row_bytes);
  };
  for (const RowBlock& row_block : split_row_blocks(source_, plan_, file)) {
    const TensorAction& action = plan_.actions[row_block.action];
    if (!needs_amax(action) || !is_across(action.group)) continue;
    row_blocks.push_back(row_block);
    total += bytes_of(row_block);
  }
  const int threads = threads_within_memory(source_, plan_, options, row_blocks);
  std::vector<Window> windows(static_cast<std::size_t>(threads));
  Amaxes amaxes(source_, plan_);
  WorkLoop loop(threads, total, options.on_progress, options.every_row_block);
  loop.run(row_blocks.size(), [&](int thread, std::size_t i) {
    amaxes.look_at(windows[static_cast<std::size_t>(thread)], row_blocks[i]);
    loop.advance(bytes_of(row_blocks[i]),
                 source_.tensors()[plan_.actions[row_blocks[i].action].tensor].name());
  });
  const std::vector<float> groups = amaxes.of_groups();
  Json found = Json::array();
  std::vector<bool> said(groups.size(), false);
  for (const RowBlock& row_block : row_blocks) {
    const auto group = static_cast<std::size_t>(plan_.actions[row_block.action].group);
    if (said[group]) continue;
    said[group] = true;
    found.push(Json::array({group, __builtin_bit_cast(std::uint32_t, groups[group])}));
  }
  std::string sum = sum_of(found);
  return Json::object({{"amaxes", std::move(found)}, {"sum", std::move(sum)}});
}

SharedAmaxes::Part SharedAmaxes::read(std::size_t file) const {
  const std::string job = SharedFolder::job_of("amax", file);
  const Json record = folder_.done(job);
  // A number that was changed would give all members of a group another scale.
  check(record["amaxes"].is_array() && record["sum"].string_or("") == sum_of(record["amaxes"]),
        ErrorCode::io, "quantize", "the record ", job, " in '", shown(folder_.work_folder(), 200),
        "' cannot be read; remove the folder '", shown(folder_.path(), 200), "' and start again");
  Part out;
  for (const Json& one : record["amaxes"].elements()) {
    const std::vector<Json>& pair = one.elements();
    const std::int64_t group = pair.size() == 2 ? pair[0].integer_or(-1) : -1,
                       bits = pair.size() == 2 ? pair[1].integer_or(-1) : -1;
    if (group >= 0 && group < static_cast<std::int64_t>(across_.size()) && bits >= 0 &&
        bits <= std::numeric_limits<std::uint32_t>::max())
      out.emplace_back(static_cast<std::size_t>(group),
                       __builtin_bit_cast(float, static_cast<std::uint32_t>(bits)));
  }
  return out;
}

std::vector<float> SharedAmaxes::of_groups(std::size_t file) {
  std::vector<float> out(across_.size(), std::numeric_limits<float>::quiet_NaN());
  for (const std::size_t other : needs_[file]) {
    if (!parts_.contains(other)) parts_[other] = read(other);
    for (const auto& [group, amax] : parts_[other])
      out[group] = std::isnan(out[group]) ? amax : std::max(out[group], amax);
  }
  return out;
}

}  // namespace octavo
