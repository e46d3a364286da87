#include "octavo/model/eval/evaluate.h"

#include <memory>

#include "octavo/base/error.h"
#include "octavo/model/eval/evaluate_internal.h"
#include "octavo/model/eval/walk_state_internal.h"

namespace octavo {

ModelEvaluation evaluate(const std::vector<std::string>& models, const EvaluateOptions& options) {
  check(!models.empty(), ErrorCode::invalid_argument, "eval",
        "got no model; expected one at least");
  const ModelFilesOptions files{.activations = options.activations, .threads = options.threads};
  std::vector<std::unique_ptr<eval::EvalModel>> open;
  if (!options.against.empty()) open.push_back(eval::open_eval_model(options.against, files));
  for (const std::string& path : models) open.push_back(eval::open_eval_model(path, files));
  std::vector<const eval::EvalModel*> all;
  for (const auto& model : open) all.push_back(model.get());
  return eval::evaluate_models(all, options);
}

void remove_evaluation_state(const std::string& resume) {
  eval::WalkState("eval", resume, {}, {}, Json::object({})).remove();
}

}  // namespace octavo
