// Bytes of tensors, and of what outlives a step: variables, optimizer slots, lookup tables.
#ifndef HPLACER_TF_TENSOR_BYTES_H_
#define HPLACER_TF_TENSOR_BYTES_H_

#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/tensor_shape.pb.h"
#include "tensorflow/core/graph/graph.h"

namespace hplacer {

// Resources and variants: the tensor names something that lies elsewhere.
bool IsHandle(tensorflow::DataType dtype);

// A handle has 8 bytes, a string 1; unknown dimensions count as 1. At most 2^50.
int64_t NumBytes(tensorflow::DataType dtype, const tensorflow::TensorShapeProto& shape);

// The memory that a node holds for the whole step.
struct PersistentMemory {
  int64_t bytes = 0;
  // Set if the node does not tell: its bytes are those of the tensors on these edges, which
  // initialise it. They may come from outside of the step.
  std::vector<const tensorflow::Edge*> initial_values;
};

// A variable, an argument that is the handle of one, or a lookup table; empty for other nodes.
PersistentMemory FindPersistentMemory(const tensorflow::Node& node);

}  // namespace hplacer

#endif  // HPLACER_TF_TENSOR_BYTES_H_
