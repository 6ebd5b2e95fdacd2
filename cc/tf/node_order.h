// Tells the alike nodes of a step apart: those of one fingerprint hash.
//
// The step's nodes, with hashes as colours, are put into a canonical order over all that joins
// them: ordered inputs, control inputs, loops' back-edges and colocation groups. Two graphs of one
// fingerprint and one structure are isomorphic, and nodes of one hash and one rank correspond.
//
// It is needed only where a graph's names changed and alike nodes have different devices.
#ifndef HPLACER_TF_NODE_ORDER_H_
#define HPLACER_TF_NODE_ORDER_H_

#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tf/step.h"

namespace hplacer {

struct NodeOrder {
  std::vector<uint32_t> ranks;  // by step position: the place among the nodes of one hash
  uint64_t structure = 0;       // a hash of how the nodes are joined
};

// `node_hashes`: the fingerprint's, by step position. `library` may be null.
NodeOrder FindNodeOrder(const tensorflow::Graph& graph, const Step& step,
                        const tensorflow::FunctionLibraryDefinition* library,
                        const std::vector<uint64_t>& node_hashes);

}  // namespace hplacer

#endif  // HPLACER_TF_NODE_ORDER_H_
