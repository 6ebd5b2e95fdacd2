// Captures a graph that is not running: what the pass would see if this graph ran on a machine
// that need not be here.
//
//   GraphDef + device names --(TensorFlow's own session or function set-up)--> PRE_PLACEMENT
//                           --(FindStep, ComputeFingerprint, CaptureStep)--> OfflineCapture
//
// TensorFlow itself builds, inlines and lowers the graph, on devices that exist by name only; a
// pass of our own captures it at the phase of the optimizer's pass and then ends the set-up. So
// ops, costs and fingerprint are those of a training process with the same devices.
//
// Does not trust the graph's contents: TensorFlow may abort on some malformed graphs, therefore
// call this in a process that may die.
//
// The Python bindings read this file: no type of TensorFlow appears here.
#ifndef HPLACER_TF_OFFLINE_CAPTURE_H_
#define HPLACER_TF_OFFLINE_CAPTURE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tf/captured_step.h"

namespace hplacer {

// The variable behind a resource argument.
struct ArgumentHandle {
  int32_t argument = 0;
  int32_t dtype = 0;  // tensorflow::DataType
  bool known_rank = true;
  std::vector<int64_t> shape;  // -1: unknown
};

struct OfflineGraph {
  std::string function;                       // in the library; empty: a session's graph
  std::vector<std::string> argument_devices;  // of the function, full names
  std::vector<ArgumentHandle> handles;
  std::vector<int32_t> free_arguments;  // variables that do not exist yet: on any device
  std::vector<std::string> targets;     // of a session's graph; empty: found
  bool allow_soft_placement = false;
};

struct OfflineMachine {
  std::vector<SessionDevice> devices;  // may_plan counts
  std::vector<KindRates> kinds;
};

struct OfflineCosts {
  int64_t batch_size;  // 0: choose
  int64_t loop_trip_count;
  std::map<std::string, std::vector<int64_t>> shapes;  // of fed tensors, see fed_shapes.h
};

// The graph as the pass sees it: calls are inlined, control flow is lowered, arguments are nodes.
struct FlatGraph {
  std::string graph_def;             // serialised: all nodes, the functions that they still need
  std::vector<std::string> targets;  // nodes whose ancestors are the step
  // Of the outputs of fed nodes (FedShapes::Filled), by name
  std::map<std::string, std::vector<std::vector<int64_t>>> fed_shapes;
};

struct OfflineCapture {
  std::string label;
  int num_ops = 0;  // nodes of the step
  Fingerprint fingerprint;
  CapturedStep step;  // devices are indices into OfflineMachine::devices
  FlatGraph flat;     // if `keep_graph`
};

// `graph_def` is serialised. Throws std::invalid_argument, which says what is wrong with the graph,
// the machine or the shapes.
OfflineCapture CaptureGraph(std::string_view graph_def, const OfflineGraph& graph,
                            const OfflineMachine& machine, const OfflineCosts& costs,
                            bool keep_graph);

}  // namespace hplacer

#endif  // HPLACER_TF_OFFLINE_CAPTURE_H_
