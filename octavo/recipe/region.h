// One outermost autocast scope: which quantizers ran in it, so that delayed scaling moves on once
// when it ends, and once more when its backward has run, whichever thread that is on.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/recipe/quantizer_set.h"

namespace octavo {

class Region;

// What a forward keeps for its backward. One that goes without ran() is a backward that never came:
// nobody waits for it. Where it is the last one and others ran, it ends their step as it goes; what
// a reducer throws is lost then, and the amaxes stay for the next step.
class OCTAVO_API BackwardTicket {
 public:
  BackwardTicket(std::shared_ptr<Region> region, StepEntry entry);
  ~BackwardTicket();
  BackwardTicket(const BackwardTicket&) = delete;
  BackwardTicket& operator=(const BackwardTicket&) = delete;

  // The amaxes are gathered. The last one of a region ends the step of all of its backward
  // quantizers; what a reducer throws comes out here. A second call does nothing.
  void ran();

 private:
  // Whose step ends with this one.
  [[nodiscard]] std::vector<StepEntry> done(bool ran);

  std::shared_ptr<Region> region_;
  StepEntry entry_;
  bool is_done_ = false;
};

class OCTAVO_API Region : public std::enable_shared_from_this<Region> {
 public:
  // To be said before the set gathers anything.
  void runs_forward(const StepEntry& entry);
  [[nodiscard]] std::shared_ptr<BackwardTicket> expect_backward(StepEntry entry);

  // The scope ends, well or not.
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
