// What import and export share: DLPack's types for our formats.
#pragma once

#include <array>

#include "octavo/format/named_formats.h"
#include "octavo/tensor/dlpack.h"

namespace octavo::dlpack {

struct CodeType {
  DLDataTypeCode code;
  Format format;
};
inline constexpr std::array<CodeType, 11> kCodeTypes{{{kDLFloat8_e3m4, e3m4},
                                                      {kDLFloat8_e4m3, e4m3},
                                                      {kDLFloat8_e4m3b11fnuz, e4m3b11fnuz},
                                                      {kDLFloat8_e4m3fn, e4m3fn},
                                                      {kDLFloat8_e4m3fnuz, e4m3fnuz},
                                                      {kDLFloat8_e5m2, e5m2},
                                                      {kDLFloat8_e5m2fnuz, e5m2fnuz},
                                                      {kDLFloat8_e8m0fnu, e8m0fnu},
                                                      {kDLFloat6_e2m3fn, e2m3fn},
                                                      {kDLFloat6_e3m2fn, e3m2fn},
                                                      {kDLFloat4_e2m1fn, e2m1fn}}};

}  // namespace octavo::dlpack
