#include "octavo/model/eval/calibrate.h"

#include "octavo/model/eval/calibration_files_internal.h"
#include "octavo/model/eval/eval_model_internal.h"
#include "octavo/model/eval/statistics_collector_internal.h"
#include "octavo/model/eval/walk_state_internal.h"

namespace octavo {

ModelStatistics calibrate(const std::string& model, const CalibrateOptions& options) {
  return eval::calibrate_model(*eval::open_eval_model(model, {.threads = options.threads}),
                               options);
}

void remove_calibration_state(const std::string& resume) {
  eval::CalibrationFiles(resume).remove();
  eval::WalkState("calibrate", resume, {}, {}, Json::object({})).remove();
}

}  // namespace octavo
