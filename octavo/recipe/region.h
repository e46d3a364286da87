// One outermost autocast scope: the quantizers that ran in it, so that delayed scaling is updated
// once when the scope ends, and once when its backward has run, on whichever thread.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/recipe/quantizer_set.h"

namespace octavo {

class Region;

// Ticket that a forward keeps for its backward. A ticket destroyed without ran() is a backward that
// never came: no step waits for it. If it was the last one and others ran, its destructor ends
// their step; an exception of a reducer is lost then, and the amaxes stay for the next step.
class OCTAVO_API BackwardTicket {
 public:
  BackwardTicket(std::shared_ptr<Region> region, StepEntry entry);
  ~BackwardTicket();
  BackwardTicket(const BackwardTicket&) = delete;
  BackwardTicket& operator=(const BackwardTicket&) = delete;

  // The backward has recorded its amaxes. The last ticket of a region ends the step of all of its
  // backward quantizers; an exception of a reducer propagates. A second call does nothing.
  void ran();

 private:
  // The entries whose step ends with this ticket.
  [[nodiscard]] std::vector<StepEntry> done(bool ran);

  std::shared_ptr<Region> region_;
  StepEntry entry_;
  bool is_done_ = false;
};

class OCTAVO_API Region : public std::enable_shared_from_this<Region> {
 public:
  // To be called before the set records an amax.
  void runs_forward(const StepEntry& entry);
  [[nodiscard]] std::shared_ptr<BackwardTicket> expect_backward(StepEntry entry);

  // The scope ends, normally or by an exception.
  void end_forward();
  void fail_forward();

 private:
  friend class BackwardTicket;
  [[nodiscard]] std::vector<StepEntry> taken_forward();

  std::mutex mutex_;
  std::vector<StepEntry> forward_, backward_;
  int backward_to_come_ = 0;
};

}  // namespace octavo
