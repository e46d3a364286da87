#include "octavo/backend/cuda/attention/forward/forward_launch.cuh"

namespace octavo::cuda {

void launch_forward_strict(const Exec& exec, const ForwardPlan& plan, const ForwardChoice& choice) {
  launch_forward_form<ForwardForm::strict, 256, true>(exec, plan, choice);
}

}  // namespace octavo::cuda
