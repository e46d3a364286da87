// Running maximum and minimum of numbers, in which a NaN stays.
#pragma once

namespace octavo {

inline void raise(double& to, double number) {
  if (to == to && !(number <= to)) to = number;
}
inline void lower(double& to, double number) {
  if (to == to && !(number >= to)) to = number;
}

}  // namespace octavo
