// The fingerprint of a step: what must be equal for a stored plan to fit.
//
// Named parts: "graph" (the step's ops), "targets", "machine" (devices), "constraints" (what
// restricts placements beside the step's own ops), "format". Two start-ups of one program have
// one fingerprint; renaming ops or reordering NodeDefs changes nothing; another op type, dtype,
// shape, attribute, edge, pin or device does.
//
// The graph part is a Merkle hash, first over ordered inputs (so a node's hash covers all its
// ancestors), then over consumers; loop back-edges are cut; functions count by their body.
// Left out: node and function names, shared_name, container, seeds, attributes that begin with
// "_" (except those that bind placement or shapes), values of floating-point constants.
//
// It is computed on every start, so it needs neither shape inference nor ColocationGraph.
#ifndef HPLACER_TF_FINGERPRINT_H_
#define HPLACER_TF_FINGERPRINT_H_

#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tf/captured_step.h"
#include "tf/step.h"

namespace hplacer {

struct FingerprintInput {
  const tensorflow::Graph* graph;
  const Step* step;
  const tensorflow::FunctionLibraryDefinition* library;  // may be null
  const std::vector<SessionDevice>* devices;
  bool allow_soft_placement;
};

// `node_hashes` receives one hash per step node, in the step's order.
Fingerprint ComputeFingerprint(const FingerprintInput& input, std::vector<uint64_t>* node_hashes);

}  // namespace hplacer

#endif  // HPLACER_TF_FINGERPRINT_H_
