// What TensorFlow hands to a PRE_PLACEMENT pass, in the terms of the planner.
//
// The pass of a training process and the capture of a stored graph both read their graph through
// these functions, so that they see the same devices, the same units and the same label.
#ifndef HPLACER_TF_PASS_INPUT_H_
#define HPLACER_TF_PASS_INPUT_H_

#include <string>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tf/captured_step.h"
#include "tf/step.h"
#include "tf/units.h"

namespace hplacer {

// TensorFlow's own phases: 0, 10, 35 ... 50, 99999. Here functions are inlined, control flow is
// lowered.
constexpr int kPhase = 100;

// "function train_step" (of "__inference_train_step_1234") or "session graph".
std::string GraphLabel(const tensorflow::GraphOptimizationPassOptions& options);

// Tells the planner's side, which logs it, that a graph keeps TensorFlow's placement. Throws
// nothing: where there is no memory for that, it writes the line.
void ReportFailure(const tensorflow::GraphOptimizationPassOptions& options,
                   const std::string& reason);

// The real devices of the session, sorted by name. `wanted` lists those that may be planned, as
// full or partial names; empty: those of the session's own task.
std::vector<SessionDevice> SessionDevices(const tensorflow::GraphOptimizationPassOptions& options,
                                          const std::vector<std::string>& wanted);

// Leaves only devices of one kind to be planned, since kernels of several kinds round differently:
// that of the first device that is no CPU, else of the first. Returns how many are left.
int KeepOneKind(std::vector<SessionDevice>* devices);

// Whether TensorFlow may replace a requested device that does not exist.
bool AllowsSoftPlacement(const tensorflow::GraphOptimizationPassOptions& options);

// Keeps pointers to `step` and `devices`.
UnitsInput MakeUnitsInput(const tensorflow::GraphOptimizationPassOptions& options, const Step* step,
                          const std::vector<SessionDevice>* devices);

}  // namespace hplacer

#endif  // HPLACER_TF_PASS_INPUT_H_
