#include "octavo/backend/cuda/attention/forward/forward_launch.cuh"

namespace octavo::cuda {

void launch_forward_bf16(const Exec& exec, const ForwardPlan& plan, const ForwardChoice& choice) {
  launch_forward_form<ForwardForm::bf16, 256, true>(exec, plan, choice);
}

}  // namespace octavo::cuda
