// Which ops of a step make what another one makes, so that TensorFlow runs only that one.
//
// Grappler merges equal ops of a device: of one type, with equal attributes and inputs, and without
// side effects ("tensorflow/core/grappler/optimizers/common_subgraph_elimination.cc").
//
// Joined. Equal ops of one unit are one. So are those that make no more bytes than they read: a
// plan keeps them on one device, as to send what one makes takes no more than to send what it
// reads.
//
// Others make more than they read, and may be wanted on several devices. A loss of many alike
// terms has them: the gradient of each mean begins with the same Tile and quotient. On how many
// devices equal ops are depends on the placement, and each of these runs one. Here the first one
// counts, if there are more than an op has devices. So a step on several devices lacks at most one
// op of such a kind on each of the others. Where there are fewer, all of them count.
//
// Constants cost nothing. But if they wait for an op, one constant that many ops read lets these
// begin in another order than many constants do. So it is told which are the same.
//
// Inputs: a step, and what is known of its nodes. Time: linear in the sizes of nodes and edges.
#ifndef HPLACER_TF_REPEATED_OPS_H_
#define HPLACER_TF_REPEATED_OPS_H_

#include <cstdint>
#include <vector>

#include "tf/costs.h"
#include "tf/removed_ops.h"
#include "tf/step.h"
#include "tf/units.h"

namespace hplacer {

// All by position in the step.
struct RepeatedOps {
  std::vector<bool> is_repeated;  // whether an earlier node, which is equal, counts for it
  // Of a constant that waits for ops: the first one that is the same, and waits for the same ops.
  // Of other nodes: themselves.
  std::vector<int32_t> same_constant;
};

// The node that runs for each of them: an earlier one of those that are joined, or itself.
// `handed_on`: the input that a node hands on, or kComputes (neutral_ops.h). `by_op`: all positions
// in the order of their ops, which is TensorFlow's: it keeps the first of equal ones.
std::vector<int32_t> FindJoinedOps(const Step& step, const Units& units, const RemovedOps& removed,
                                   const std::vector<bool>& is_static,
                                   const std::vector<int32_t>& handed_on,
                                   const std::vector<OpCosts>& costs,
                                   const std::vector<int32_t>& by_op);

// `runs_as`: of FindJoinedOps. Nodes that run as another one are removed by now.
RepeatedOps FindRepeatedOps(const Step& step, const Units& units, const RemovedOps& removed,
                            const std::vector<bool>& is_static,
                            const std::vector<int32_t>& handed_on,
                            const std::vector<OpCosts>& costs, const std::vector<int32_t>& by_op,
                            const std::vector<int32_t>& runs_as);

}  // namespace hplacer

#endif  // HPLACER_TF_REPEATED_OPS_H_
