#include "octavo/recipe/region.h"

#include <algorithm>
#include <utility>

namespace octavo {
namespace {

// A module that runs twice in a step ends it once.
void add(std::vector<StepEntry>& entries, const StepEntry& entry) {
  const bool known =
      std::ranges::any_of(entries, [&](const StepEntry& other) { return other.set == entry.set; });
  if (!known) entries.push_back(entry);
}

}  // namespace

BackwardTicket::BackwardTicket(std::shared_ptr<Region> region, StepEntry entry)
    : region_(std::move(region)), entry_(std::move(entry)) {
  const std::lock_guard lock(region_->mutex_);
  ++region_->backward_to_come_;
}

BackwardTicket::~BackwardTicket() {
  try {
    end_step(done(false));
  } catch (...) {  // a destructor cannot report it; the amaxes stay for the next step
  }
}

void BackwardTicket::ran() { end_step(done(true)); }

std::vector<StepEntry> BackwardTicket::done(bool ran) {
  const std::lock_guard lock(region_->mutex_);
  if (is_done_) return {};
  is_done_ = true;
  if (ran) add(region_->backward_, entry_);
  if (--region_->backward_to_come_ > 0) return {};
  return std::exchange(region_->backward_, {});
}

void Region::runs_forward(const StepEntry& entry) {
  const std::lock_guard lock(mutex_);
  add(forward_, entry);
}

std::shared_ptr<BackwardTicket> Region::expect_backward(StepEntry entry) {
  return std::make_shared<BackwardTicket>(shared_from_this(), std::move(entry));
}

std::vector<StepEntry> Region::taken_forward() {
  const std::lock_guard lock(mutex_);
  return std::exchange(forward_, {});
}

void Region::end_forward() { end_step(taken_forward()); }
void Region::fail_forward() { forget_step(taken_forward()); }

}  // namespace octavo
