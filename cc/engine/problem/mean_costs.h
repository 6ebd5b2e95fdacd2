// Costs of ops and transfers before anything is placed: means over where they could be.
//
// An op's is the mean over its unit's candidates, a tensor's the mean over all links (nothing
// without links). Rounded down to nanoseconds.

#ifndef HPLACER_ENGINE_PROBLEM_MEAN_COSTS_H_
#define HPLACER_ENGINE_PROBLEM_MEAN_COSTS_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

struct MeanCosts {
  // Assumes that every unit has a candidate.
  explicit MeanCosts(const Problem& problem);

  std::vector<int64_t> op_ns;      // [n]
  std::vector<int64_t> tensor_ns;  // [T]
  int64_t signal_ns = 0;           // of a control edge
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_MEAN_COSTS_H_
