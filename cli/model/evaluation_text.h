// A ModelEvaluation as text: a table, and where along the layers the models go apart.
#pragma once

#include <string>

#include "octavo/report/model_evaluation.h"

namespace octavo::cli {

std::string evaluation_text(const ModelEvaluation& evaluation);

}  // namespace octavo::cli
