// Where a plan puts NoOps that group two ops, so that TensorFlow removes them.
//
// TensorFlow 1's gradients of an op are grouped: the Identities that hand them on wait for a NoOp
// that waits for all of them. Grappler takes such a group of two out, and each Identity waits for
// the other gradient itself (removed_ops.h). But first it lets the readers of an Identity read what
// that reads. If there are two readers, they wait for the group from then on, and to take it out
// would add edges: 2 x 3 for 2 + 3. So the group stays, and signals go through its device, while
// those of a problem go straight. Whether it comes to that depends on the devices of all ops around
// it, but for one case: where the group is alone on its device, passing over an Identity would add
// edges between devices, so Grappler takes out the group first, and then the Identities
// ("tensorflow/core/grappler/optimizers/dependency_optimizer.cc", BypassingNodeIsBeneficial).
#ifndef HPLACER_TF_GROUPS_APART_H_
#define HPLACER_TF_GROUPS_APART_H_

#include <vector>

#include "tf/assignment.h"
#include "tf/captured_step.h"

namespace hplacer {

// Moves each group of two whose four neighbours are on several devices to the first device of its
// task where none of them is. Where there is no such device, it stays. In a loop all are on one.
//
//   before: a -> GPU:0, b -> GPU:1, group -> GPU:0, Identity of a -> GPU:0, Identity of b -> GPU:1
//   after:  group -> CPU:0
void SetGroupsApart(const std::vector<SessionDevice>& devices, NodeDevices* resolved);

}  // namespace hplacer

#endif  // HPLACER_TF_GROUPS_APART_H_
