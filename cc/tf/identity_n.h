// Takes ops IdentityN apart.
//
// Keras hands all gradients of a step to its optimizer through one IdentityN. On one device
// Grappler removes it. Over several devices it stays: all gradients travel to its device, and on to
// those of the variables, and the first update waits for the last gradient. Here whatever reads an
// output of such an op reads the input that this output is instead. What waits for the op by a
// control edge waits for a NoOp of its name, which waits for all of its inputs.
//
// An op stays as it is where that might change what runs, or where it runs: it waits for other ops
// by control edges, its inputs may be dead one by one, one of them is a reference, it has a device,
// a colocation group or attributes of XLA.
//
// Only functions are changed: any tensor of a session's graph may be fed by its name.
#ifndef HPLACER_TF_IDENTITY_N_H_
#define HPLACER_TF_IDENTITY_N_H_

#include <memory>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/graph/graph.h"

namespace hplacer {

// A copy of a function's graph with them taken apart; null if there is nothing to take apart. Reads
// the graph before placement, with its control edges complete: Grappler leaves out those that
// follow from a way through an IdentityN.
std::unique_ptr<tensorflow::Graph> WithoutIdentityN(
    const tensorflow::GraphOptimizationPassOptions& options);

// Gives a pass the graph of its options without IdentityN. The graph itself is back once this ends,
// unless the other one was kept.
class TakenApart {
 public:
  explicit TakenApart(const tensorflow::GraphOptimizationPassOptions& options);
  ~TakenApart();
  TakenApart(const TakenApart&) = delete;
  TakenApart& operator=(const TakenApart&) = delete;

  void Keep() { original_.reset(); }

 private:
  std::unique_ptr<tensorflow::Graph>* graph_;
  std::unique_ptr<tensorflow::Graph> original_;  // null: nothing was taken apart, or it is kept
};

}  // namespace hplacer

#endif  // HPLACER_TF_IDENTITY_N_H_
