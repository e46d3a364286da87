// The end of a step, for all sets that ran in it.
#include <utility>

#include "octavo/base/error.h"
#include "octavo/recipe/quantizer_set.h"

namespace octavo {
namespace {

bool is_reduced(const StepEntry& entry) {
  const auto* recipe = entry.set->recipe().get<DelayedScaling>();
  return recipe != nullptr && recipe->reduce_amax && entry.amax_group != nullptr;
}

// A negative amax would be a negative scale later; NaN would stay in the history unseen.
void check_reduced(std::span<const float> amaxes) {
  for (const float amax : amaxes)
    check(amax >= 0.0F, ErrorCode::invalid_argument, "autocast", "the amax group gave ", amax,
          "; expected the largest of the magnitudes that its processes had");
}

}  // namespace

void end_step(std::span<const StepEntry> entries) {
  // Groups in the order in which they are first met, which is the same in every process.
  struct Group {
    const Reducer* reduce;
    std::vector<const StepEntry*> members;
    std::vector<float> amaxes;
  };
  std::vector<Group> groups;
  for (const StepEntry& entry : entries) {
    if (!is_reduced(entry)) continue;
    Group* group = nullptr;
    for (Group& known : groups)
      if (known.reduce == entry.amax_group.get()) group = &known;
    if (group == nullptr) group = &groups.emplace_back(Group{entry.amax_group.get(), {}, {}});
    group->members.push_back(&entry);
    const std::vector<float> amaxes = entry.set->amaxes(entry.stream);
    group->amaxes.insert(group->amaxes.end(), amaxes.begin(), amaxes.end());
  }
  for (Group& group : groups) {
    (*group.reduce)(group.amaxes);
    check_reduced(group.amaxes);
  }
  for (const Group& group : groups) {
    std::span<const float> rest = group.amaxes;
    for (const StepEntry* entry : group.members) {
      entry->set->set_amaxes(rest.first(entry->set->size()), entry->stream);
      rest = rest.subspan(entry->set->size());
    }
  }
  for (const StepEntry& entry : entries) entry.set->update(entry.stream);
}

void forget_step(std::span<const StepEntry> entries) {
  for (const StepEntry& entry : entries)
    if (entry.set->has_state())
      entry.set->set_amaxes(std::vector<float>(entry.set->size(), 0.0F), entry.stream);
}

}  // namespace octavo
