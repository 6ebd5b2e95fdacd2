// Turns a step into the arrays of a Problem: the full work of a miss (a hit never comes here).
//
//   nodes of the step --(loops collapsed)--> ops --(groups)--> units
//
// Each node becomes one op, except that a while loop without a variable update becomes one op:
// cost = trips x body, outputs = its Exits. Ops come in topological order, which is the one that
// TensorFlow's executor goes by (engine/problem/op_order.h). Identity-like outputs are aliases of
// what they read; a variable's read is an alias of persistent memory. What TensorFlow replaces by a
// constant (static_ops.h) reads nothing: the data edges into it are left out, and it costs what a
// constant costs. What it replaces by one of its inputs (neutral_ops.h) reads only that, as an
// alias. What it removes (removed_ops.h, merged_sums.h), or runs as an equal op (repeated_ops.h),
// has no edges, costs nothing, and is of the unit of a neighbour or of that op. What it adds on
// GPUs (layout_transposes.h) is an op without a node. Node hashes are those of the whole graph.
#ifndef HPLACER_TF_CAPTURE_H_
#define HPLACER_TF_CAPTURE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tf/captured_step.h"
#include "tf/costs.h"
#include "tf/units.h"

namespace hplacer {

// By step position: `node_hashes` are the fingerprint's, `default_devices` are where TensorFlow
// puts the nodes, or empty.
absl::Status CaptureStep(const UnitsInput& input, const std::vector<uint64_t>& node_hashes,
                         const std::vector<int32_t>& default_devices, const CostOptions& options,
                         CapturedStep* captured);

}  // namespace hplacer

#endif  // HPLACER_TF_CAPTURE_H_
