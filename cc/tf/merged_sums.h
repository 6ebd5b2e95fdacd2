// Which sums TensorFlow merges into one before it runs the step.
//
// Grappler makes one AddN of a tree of Add and AddN on one device, if nobody else reads what is
// inside and no control edge begins or ends there
// ("tensorflow/core/grappler/optimizers/arithmetic_optimizer.cc"). The gradients of a weight that
// every time step reads may be summed one by one, so that few of them are held at a time; merged,
// all are. Trees with tensors of several shapes are left out: what Grappler makes of these has the
// same number of sums.
//
// Inputs: a step, and what is known of its nodes. Time: linear in the step's edges.
#ifndef HPLACER_TF_MERGED_SUMS_H_
#define HPLACER_TF_MERGED_SUMS_H_

#include <cstdint>
#include <vector>

#include "tf/costs.h"
#include "tf/removed_ops.h"
#include "tf/step.h"
#include "tf/units.h"

namespace hplacer {

// All by position in the step.
struct MergedSums {
  std::vector<int32_t> into;                  // of a sum that is merged: the one it becomes, or -1
  std::vector<std::vector<StepEdge>> inputs;  // of a sum that others become: all; else empty
};

// Merges only what the same devices are allowed to run, and what is no part of another unit.
// `handed_on`: see neutral_ops.h. `runs_as`: see repeated_ops.h.
MergedSums FindMergedSums(const Step& step, const Units& units, const RemovedOps& removed,
                          const std::vector<bool>& is_static, const std::vector<int32_t>& handed_on,
                          const std::vector<OpCosts>& costs, const std::vector<int32_t>& runs_as);

}  // namespace hplacer

#endif  // HPLACER_TF_MERGED_SUMS_H_
