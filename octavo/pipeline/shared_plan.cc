#include "octavo/base/error.h"
#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"
#include "octavo/pipeline/plan/output_files_internal.h"
#include "octavo/pipeline/shared_plan_internal.h"

namespace octavo {

SharedPlan::SharedPlan(std::string_view op, const SharedRun& shared, std::string_view work,
                       const std::string& out)
    : path_(shared.plan) {
  check_shared_run(shared);
  file_ = read_plan_file(path_);
  check(file_.work == work, ErrorCode::invalid_argument, op, "'", shown(path_, 200),
        "' is a plan to ", file_.work, "; use that command, or make another plan (octavo plan)");
  check(!is_one_file(out), ErrorCode::invalid_argument, op, "'", shown(out, 200),
        "' is one file, which several processes cannot divide; give the name of a folder");
}

bool SharedPlan::follow_links(bool given) const {
  check(!given || file_.follow_links, ErrorCode::invalid_argument, "plan",
        "got option follow_links, and '", shown(path_, 200),
        "' says for all processes that links are not followed; leave it out, or make another plan "
        "(octavo plan)");
  return file_.follow_links;
}

void SharedPlan::check_source(const CheckpointReader& source) const {
  check_plan_source(file_, path_, source);
}

SharedIdentity SharedPlan::identity(const CheckpointReader& source, const QuantizePlan& plan,
                                    const QuantizeCheckpointOptions& options) const {
  return {.plan = check_plan_file(path_, file_, source, plan),
          .sample = source_sample(source, options.threads),
          .measure = options.measure};
}

}  // namespace octavo
