#include "octavo/backend/cuda/attention/forward/forward_launch.cuh"

namespace octavo::cuda {

void launch_forward_balanced(const Exec& exec, const ForwardPlan& plan,
                             const ForwardChoice& choice) {
  launch_forward_form<ForwardForm::balanced, 256, false>(exec, plan, choice);
}

}  // namespace octavo::cuda
