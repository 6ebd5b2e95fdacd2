#include "engine/problem/candidates.h"

#include <string>

namespace hplacer {

void CheckCandidates(const Problem& problem) {
  const ProblemSpec& spec = problem.spec();
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
    if (problem.candidate_ptr()[unit] < problem.candidate_ptr()[unit + 1]) continue;
    const int32_t first = problem.unit_op_ptr()[unit], end = problem.unit_op_ptr()[unit + 1];
    const int32_t op = problem.unit_ops()[first];
    std::string message = "op '" + spec.op_names[op] + "'";
    if (end - first > 1) {
      message += " and the " + std::to_string(end - first - 1) + " others of colocation group '" +
                 spec.colocation_group_names[spec.colocation_group[op]] + "'";
    }
    message += " can run on none of the devices";
    for (const std::string& name : spec.device_names) message += " '" + name + "'";
    throw InfeasibleError(message + ": allow a device that has a kernel for every one of them");
  }
}

}  // namespace hplacer
