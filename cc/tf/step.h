// Finds the training step inside a graph.
//
// A function body is its own step: everything in it runs. A session's graph also holds
// initialisers, savers and summaries; there the step is the closure (all ancestors) of the
// training targets: named by the user, else of the sink that updates variables and costs most.
// "Costs" is judged without shapes (contractions weigh most, initial values nothing), because
// the step must be known before anything expensive runs.
#ifndef HPLACER_TF_STEP_H_
#define HPLACER_TF_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/graph/graph.h"

namespace hplacer {

// An edge between two nodes of the step, kept in the list of its consumer.
struct StepEdge {
  int32_t source;  // position
  int32_t src_output;
  int32_t dst_input;  // Graph::kControlSlot: a control edge
};

struct Step {
  std::vector<tensorflow::Node*> nodes;    // topological, loop back-edges cut
  std::vector<int32_t> position;           // by node id; -1: outside of the step
  std::vector<tensorflow::Node*> targets;  // empty for a function body
  // Edges into position i are [first_edge[i], first_edge[i + 1]); back-edges are left out.
  std::vector<StepEdge> edges;
  std::vector<size_t> first_edge;  // [nodes + 1]

  bool Contains(const tensorflow::Node* node) const { return position[node->id()] >= 0; }
};

// True for ops that write to a variable ("ResourceApplyAdam", "AssignVariableOp", ...).
bool UpdatesVariable(const std::string& op_type);

// Whether the step has gradients, by the scopes that TensorFlow gives them. An initialisation or an
// inference has none.
bool ComputesGradients(const Step& step);

// The type of an op by which devices exchange tensors among themselves ("CollectiveReduceV2"), each
// with a member of its own; empty: the step has none. Each replica then has its device.
std::string CollectiveOp(const Step& step);

// True for the edge that closes a loop; cutting these leaves the graph acyclic.
inline bool IsBackEdge(const tensorflow::Edge& edge) { return edge.src()->IsNextIteration(); }

// True for outputs whose consumers TensorFlow colocates with the node.
inline bool Binds(tensorflow::DataType type) {
  return tensorflow::IsRefType(type) || type == tensorflow::DT_RESOURCE;
}

// True for the edge whose ends TensorFlow colocates.
inline bool BindsEnds(const tensorflow::Edge& edge) {
  return !edge.IsControlEdge() && Binds(edge.src()->output_type(edge.src_output()));
}

// Fills `step`. NotFound if a named target is not in the graph, InvalidArgument if the graph
// has a cycle that no loop explains.
absl::Status FindStep(const tensorflow::Graph& graph, bool is_function,
                      const std::vector<std::string>& target_names, Step* step);

}  // namespace hplacer

#endif  // HPLACER_TF_STEP_H_
