// Units of placement: which nodes must share a device, and which devices they may use.
//
// Seven rules, applied in this order:
// 1. TensorFlow's own colocation groups and candidate devices (ColocationGraph), which respect
//    assigned devices, the user's tf.device annotations, kernels, resources and references.
// 2. Switch, Exit, Enter and NextIteration go with the neighbour that TensorFlow's partitioner
//    moves them to.
// 3. What reads a dataset goes with what made or passed it: its cache and seeds are there.
// 4. What XLA compiles stays with its variables, where TensorFlow has them: it cannot read others.
// 5. A batch norm and its gradient stay on the type of device where TensorFlow has them: what the
//    one saves for the other differs. So do random ops that draw other numbers on another type.
// 6. A while loop runs as one op on one device, unless it contains the variable update (then the
//    loop is the training itself, and its body is placed per unit). Where most of its nodes may run
//    on an accelerator, the others stay where TensorFlow has them.
// 7. Chains that TensorFlow fuses into one op share a device: Grappler's remapper (a contraction, a
//    bias, then a residual or an activation, each read by the next one alone) fuses across devices
//    and would undo the plan, and oneDNN (Conv2DBackpropFilter + BiasAddGrad, Pad + Conv2D) fuses
//    only within one, so numbers change.
// Rules 2 to 7 join groups only where a common candidate device is left.
#ifndef HPLACER_TF_UNITS_H_
#define HPLACER_TF_UNITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/framework/function.h"
#include "tf/captured_step.h"
#include "tf/step.h"

namespace hplacer {

struct UnitsInput {
  const tensorflow::Graph* graph;
  const Step* step;
  const tensorflow::FunctionLibraryDefinition* library;
  const tensorflow::DeviceSet* device_set;
  const tensorflow::Device* default_device;  // may be null
  const std::vector<SessionDevice>* devices;
  bool allow_soft_placement;
  std::string function_name;  // empty for a session graph
};

struct Units {
  std::vector<int32_t> unit_of;               // by step position
  std::vector<std::vector<int32_t>> allowed;  // by unit: ascending device indices, never empty
  std::vector<bool> movable;                  // by step position: a device may be requested
  std::vector<int32_t> frame_of;              // by step position: collapsed loop, or -1
  std::vector<std::string> frame_names;       // by collapsed loop
  std::vector<int32_t> frame_position;        // by collapsed loop: a node whose unit is the loop's
  int32_t compiled_by_xla = 0;                // nodes, which stay where TensorFlow has them
};

absl::Status FindUnits(const UnitsInput& input, Units* units);

}  // namespace hplacer

#endif  // HPLACER_TF_UNITS_H_
