// Which transposes TensorFlow adds to a step whose ops run on GPUs.
//
// There Grappler puts channels before rows and columns, since cuDNN is faster so: convolutions and
// poolings are given another layout, and what lies between them follows. Where that ends, it adds
// transposes ("tensorflow/core/grappler/optimizers/generic_layout_optimizer.cc"). Each is a launch,
// and reads and writes its tensor. Which ops follow depends on their shapes and on many rules, so
// Grappler's own optimizer is asked, with all ops on a GPU that may run there.
//
// Inputs: a step, and its graph with complete shapes. Time: as long as TensorFlow takes for it at
// the first step; none without a convolution or pooling that a GPU may run.
#ifndef HPLACER_TF_LAYOUT_TRANSPOSES_H_
#define HPLACER_TF_LAYOUT_TRANSPOSES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/framework/graph.pb.h"
#include "tf/captured_step.h"
#include "tf/step.h"
#include "tf/units.h"

namespace hplacer {

// Positions are those in the step.
struct AddedTranspose {
  std::string name;            // as TensorFlow calls it
  int32_t source, src_output;  // what it reads
  int32_t owner;  // whose layout it is for: the source or a reader; it is on the device of that one
  std::vector<int32_t> readers;  // ascending
};

// `graph` has the step's nodes, and may have others. `handed_on`, by position, is the input that a
// node hands on, or kComputes (neutral_ops.h). Where the optimizer fails, TensorFlow goes on
// without it: there are none.
std::vector<AddedTranspose> FindAddedTransposes(const Step& step, const Units& units,
                                                const std::vector<SessionDevice>& devices,
                                                const std::vector<int32_t>& handed_on,
                                                tensorflow::GraphDef graph);

}  // namespace hplacer

#endif  // HPLACER_TF_LAYOUT_TRANSPOSES_H_
