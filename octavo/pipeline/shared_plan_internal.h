// SharedPlan: the plan file of a process that is one of several, checked step by step: the file,
// the source it was made of, and that it says what octavo plans.
#pragma once

#include <string>
#include <string_view>

#include "octavo/pipeline/output/shared_folder_internal.h"
#include "octavo/pipeline/plan/file/plan_file.h"
#include "octavo/pipeline/plan/quantize_options.h"

namespace octavo {

class SharedPlan {
 public:
  // Throws Error where the plan is of other work than `work`, or `out` cannot be shared.
  SharedPlan(std::string_view op, const SharedRun& shared, std::string_view work,
             const std::string& out);

  [[nodiscard]] const PlanFile& file() const { return file_; }
  // Where the source is: as given, or as the plan says.
  [[nodiscard]] std::string model(const std::string& given) const {
    return given.empty() ? file_.model : given;
  }
  // What the plan says, for all processes; `given` is what this one was given. Throws Error where
  // it asks for links that the others do not follow.
  [[nodiscard]] bool follow_links(bool given) const;
  void check_source(const CheckpointReader& source) const;
  [[nodiscard]] SharedIdentity identity(const CheckpointReader& source, const QuantizePlan& plan,
                                        const QuantizeCheckpointOptions& options) const;

 private:
  std::string path_;
  PlanFile file_;
};

}  // namespace octavo
