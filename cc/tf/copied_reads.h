// Reads of a variable that copy it.
//
// A ReadVariableOp hands on the variable's memory. But once an update has written single rows of
// the variable, TensorFlow copies all of it at every read, as such updates do not wait for readers
// (`copy_on_read_mode` in "core/framework/resource_var.h").
#ifndef HPLACER_TF_COPIED_READS_H_
#define HPLACER_TF_COPIED_READS_H_

#include "tensorflow/core/graph/graph.h"

namespace hplacer {

// Whether the node is a ReadVariableOp whose variable its graph updates by rows.
bool IsCopiedRead(const tensorflow::Node& node);

}  // namespace hplacer

#endif  // HPLACER_TF_COPIED_READS_H_
