// Where TensorFlow's own placer puts the nodes of a graph: what runs without a plan, and what a
// plan has to beat.
//
//   graph at PRE_PLACEMENT --copy--> Placer --> device of every node; the graph stays as it is
//
// On a miss only: the placer takes as long as TensorFlow's own run of it, which comes later.
#ifndef HPLACER_TF_DEFAULT_PLACEMENT_H_
#define HPLACER_TF_DEFAULT_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tf/captured_step.h"
#include "tf/step.h"

namespace hplacer {

// Assigns a device to every node of `graph`, a copy of that of `options`, as TensorFlow would.
absl::Status RunPlacer(const tensorflow::GraphOptimizationPassOptions& options,
                       tensorflow::Graph* graph);

// By step position, the index into `devices` of where TensorFlow puts the node. Empty if that is
// not known: the placer refuses the graph, as it will without us, or uses a device that is not
// among them.
std::vector<int32_t> DefaultDevices(const tensorflow::GraphOptimizationPassOptions& options,
                                    const Step& step, const std::vector<SessionDevice>& devices);

}  // namespace hplacer

#endif  // HPLACER_TF_DEFAULT_PLACEMENT_H_
