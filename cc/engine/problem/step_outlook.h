// What is known of ops before anything is placed: how far each is from either end of the step, and
// which ones are on demand.
//
// By mean costs (mean_costs.h). Transfers within a unit take no time. Times are nanoseconds.

#ifndef HPLACER_ENGINE_PROBLEM_STEP_OUTLOOK_H_
#define HPLACER_ENGINE_PROBLEM_STEP_OUTLOOK_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

struct StepOutlook {
  // Assumes that every unit has a candidate.
  explicit StepOutlook(const Problem& problem);

  std::vector<int64_t> before_ns;  // [n] the longest way from the begin of the step to the op
  std::vector<int64_t> after_ns;   // [n] from the begin of the op to the end of the step
  std::vector<int64_t> op_ns;      // [n] mean cost
  int64_t longest_ns = 1;          // of all ways

  // How close the op is to the longest way: at most 1.
  double Criticality(int32_t op) const {
    return static_cast<double>(before_ns[op] + after_ns[op]) / static_cast<double>(longest_ns);
  }
};

// Ops at the sources that say nothing about where they are needed: variables, their reads,
// constants. They have a choice of devices and read nothing but such ops of their unit, at most
// three deep. Their consumers decide where they go. [n] 1: the op is on demand.
std::vector<uint8_t> OnDemandOps(const Problem& problem);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_STEP_OUTLOOK_H_
