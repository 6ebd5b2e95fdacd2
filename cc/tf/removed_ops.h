// Which ops of a step TensorFlow removes before it runs the step, and what waits for what then.
//
// Grappler makes a NoOp of an op whose outputs nobody reads. It takes out a NoOp where that adds no
// edges: what waited for the NoOp waits for the NoOp's inputs instead. Such an op computes nothing,
// and nothing is sent to it. Gradients are full of them: TensorFlow groups the gradients of an
// op's inputs under a NoOp, also those that nobody wants.
// ("tensorflow/core/grappler/optimizers/dependency_optimizer.cc"; its rules are followed but for
// those that depend on the placement.) Targets stay, and what they wait for: whoever fetches these
// by other names wants their outputs. Before that and after it, it drops what follows from other
// edges. Whatever it takes out of a node's inputs, the last one takes its place, so the order
// changes.
//
// TensorFlow also lets the readers of an Identity read what that reads, if this adds no edges. Then
// what a group of two releases may be more, and TensorFlow keeps it. A plan has it removed all the
// same (groups_apart.h). Identities themselves stay here: whether one goes depends on the devices
// of its readers, and it computes nothing.
//
// Inputs: a step, and what is known of its nodes. The analysis visits an edge again only where
// something was removed at one of its ends.
#ifndef HPLACER_TF_REMOVED_OPS_H_
#define HPLACER_TF_REMOVED_OPS_H_

#include <cstdint>
#include <vector>

#include "tf/ordered_inputs.h"
#include "tf/step.h"

namespace hplacer {

// All by position in the step.
struct RemovedOps {
  std::vector<bool> is_removed;
  // Of nodes that are removed: one that runs and that was next to it, or -1.
  std::vector<int32_t> neighbour;
  // What each node that runs waits for without reading it, in the order in which it is written
  // down.
  std::vector<std::vector<int32_t>> waits_for;
};

// `is_static`: constants at run time (static_ops.h). `is_fixed`: is never removed. `order`: all
// positions in a topological order that is the same for equal graphs. `inputs`: of OrderedInputs.
RemovedOps FindRemovedOps(const Step& step, const std::vector<bool>& is_static,
                          const std::vector<bool>& is_fixed, const std::vector<int32_t>& order,
                          const InputLists& inputs);

}  // namespace hplacer

#endif  // HPLACER_TF_REMOVED_OPS_H_
