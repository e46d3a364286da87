// Tile shapes of the forward kernels: rows and keys of a tile, stages, and the layout of shared
// memory.
#pragma once

#include <algorithm>

#include "octavo/backend/cuda/attention/forward/forward_plan.h"

namespace octavo::cuda {

template <ForwardForm kFormIs, int kDepthIs, bool kKeyScalesIs>
struct ForwardKernel {
  static constexpr ForwardForm kForm = kFormIs;
  static constexpr int kDepth = kDepthIs;
  static constexpr bool kKeyScales = kKeyScalesIs;
  static constexpr bool kIsFast = kForm == ForwardForm::fast;

  // A warpgroup has 64 rows. Three of them where sums leave registers for it.
  static constexpr int kGroups = kDepth <= 64 ? 3 : 2, kRows = 64 * kGroups;
  static constexpr int kKeys = kDepth <= 128 ? 128 : 64;
  static constexpr int kThreads = (kGroups + 1) * 128, kClusterSize = 1;
  static constexpr int kConsumerRegisters = kGroups == 3 ? 160 : 240,
                       kProducerRegisters = kGroups == 3 ? 32 : 24;
  // Warpgroups take turns at issuing products, so that one has its softmax while the other
  // multiplies.
  static constexpr bool kTurns = kGroups == 2;

  // Of so many pairs of exponentials one is a polynomial on the FMA pipes (f16 scores).
  static constexpr int kPolynomialEvery = kDepth <= 64 ? 2 : 4;

  // Panels of Q and K: rows of kLine bytes, which TMA swizzles.
  static constexpr int kScoreBytes = kForm == ForwardForm::bf16 ? 2 : 1;
  static constexpr int kLine = std::min(128, kDepth*kScoreBytes),
                       kPanels = kDepth * kScoreBytes / kLine;
  static constexpr int kQPanel = kRows * kLine, kQBytes = kPanels * kQPanel;
  static constexpr int kKPanel = kKeys * kLine, kKBytes = kPanels * kKPanel;
  // V: panels of 64 channels, a row for each key; or, of codes, a row of kKeys for each channel.
  // After it eight columns of ones, which sum P: eight rows of codes, or a panel of which wgmma
  // takes eight channels.
  static constexpr int kVPanel = kKeys * 128;
  static constexpr int kVLoaded = kIsFast ? kDepth * kKeys : kDepth / 64 * kVPanel;
  static constexpr bool kSumsByOnes = kDepth <= 128;
  static constexpr int kOnesBytes = !kSumsByOnes ? 0 : kIsFast ? 8 * kKeys : kVPanel;
  static constexpr int kVBytes = kVLoaded + kOnesBytes;
  static constexpr int kScaleBytes = !kKeyScales ? 0 : kKeys * (kIsFast ? 2 : 4);

  static constexpr int kStageBytes = kKBytes + kVBytes + kScaleBytes;
  static constexpr int kBesides = kQBytes + kRows * 4 + 256 + 1024;
  static constexpr int kStages = std::min(4, (227 * 1024 - kBesides) / kStageBytes);
  static_assert(kStages >= 2);
  static constexpr int kAtK = kQBytes, kAtV = kAtK + kStages * kKBytes,
                       kAtScales = kAtV + kStages * kVBytes,
                       kAtFactors = kAtScales + kStages * kScaleBytes,
                       kAtBarriers = kAtFactors + kRows * 4,
                       kAtWork = kAtBarriers + 8 * (6 + 4 * kStages);
  static_assert(kAtWork % 16 == 0);
  static constexpr int kSharedBytes = kStages * kStageBytes + kBesides;
};

}  // namespace octavo::cuda
