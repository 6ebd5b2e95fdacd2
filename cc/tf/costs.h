// Analytic costs of ops: time per device kind, and bytes of outputs and variables.
//
// Shapes come from TensorFlow's own inference (GraphProperties) over what fed_shapes.h fills in,
// times from the work of each op (op_work.h) at the kind's rates. What inference leaves unknown is
// filled like a fed tensor. Every assumption is reported as a sentence.
#ifndef HPLACER_TF_COSTS_H_
#define HPLACER_TF_COSTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/graph/graph.h"
#include "tf/captured_step.h"
#include "tf/fed_shapes.h"

namespace hplacer {

struct CostOptions {
  const std::vector<KindRates>* kinds;
  int64_t batch_size;  // 0: choose
  int64_t loop_trip_count;
  NamedShapes shapes;  // of fed tensors
};

struct OpCosts {
  std::vector<int64_t> cost_ns;  // by kind; where ops are launched ahead, without launches
  int64_t launches = 1;          // of kernels
  std::vector<int64_t> output_bytes;
  int64_t persistent_bytes = 0;
  std::string signature;  // see op_signature.h
  // Whether the result follows from shapes that are known without any assumption: static_ops.h.
  bool follows_from_shapes = false;
  bool keeps_shape = false;  // of a Reshape or BroadcastTo: what it makes has the shape of input 0
};

// Adds to `sum` what so many trips of `body` take and launch.
void AddTrips(const OpCosts& body, int64_t trips, OpCosts* sum);

// What the simulator is told of a kind. Where ops are launched ahead, it knows of the op's first
// launch only: an op that launches many kernels, such as a while loop, lasts as long as these or as
// the other launches, whichever is longer.
int64_t CostOnKind(const OpCosts& costs, size_t kind, const KindRates& rates);

// Costs by node, in the order of `nodes` (a set closed under ancestors). A node inside a while
// loop costs one trip; LoopTrips tells how many there are. InvalidArgument if `options.shapes`
// does not fit the graph. `graph` is what shapes were inferred from: the nodes and what fills their
// variables, with shapes of what is fed, and assumed ones.
absl::Status EstimateCosts(const std::vector<tensorflow::Node*>& nodes,
                           const tensorflow::FunctionLibraryDefinition* library,
                           const CostOptions& options, std::vector<OpCosts>* costs,
                           tensorflow::GraphDef* graph, std::vector<std::string>* assumptions);

// Trips of each loop frame among `nodes` whose bound is constant: LoopCond's comparison with a
// constant limit, start and stride. Frames that are missing have no constant bound.
std::map<std::string, int64_t> ConstantLoopTrips(const std::vector<tensorflow::Node*>& nodes);

}  // namespace hplacer

#endif  // HPLACER_TF_COSTS_H_
