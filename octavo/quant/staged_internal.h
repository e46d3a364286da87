// Unfused producer + quantize, for backends that do not fuse the two: row blocks that fit a cache
// are produced into staging memory and quantized from there.
#pragma once

#include <cstdint>
#include <functional>

#include "octavo/backend/kernels.h"
#include "octavo/exec/place_internal.h"

namespace octavo {

// The job, or amax, for some rows of the matrix only.
QuantizeSource rows_of(const QuantizeSource& source, std::int64_t first, std::int64_t count);
QuantizeJob rows_of(const QuantizeJob& job, std::int64_t first, std::int64_t count);

// Row granularity: any multiple of this many rows can be quantized separately with the same result.
// All rows, where there is no smaller number.
std::int64_t rows_together(const QuantizeJob& job);

class Stager {
 public:
  // Entries of the kernel table, for this Exec.
  Stager(const Exec& exec, decltype(Kernels::produce) produces,
         decltype(Kernels::quantize) quantizes, decltype(Kernels::amax) finds_amax)
      : memory_(exec), produce_(produces), quantize_(quantizes), amax_(finds_amax) {}

  // As the entries of the kernel table, for sources that have a producer.
  void quantize(const Exec& exec, const QuantizeJob& job);
  void amax(const Exec& exec, const QuantizeSource& source, AmaxOf of, float* found);
  // Calls visit with jobs that have the produced values of some rows as their source.
  void visit(const Exec& exec, const QuantizeJob& job,
             const std::function<void(const QuantizeJob&)>& visit_rows);

 private:
  template <typename Visit>
  void for_each_row_block(const Exec& exec, const QuantizeSource& source, std::int64_t together,
                          Visit&& visit);

  StagingMemory memory_;
  decltype(Kernels::produce) produce_;
  decltype(Kernels::quantize) quantize_;
  decltype(Kernels::amax) amax_;
};

}  // namespace octavo
