// Shapes of what a step is fed with: arguments, placeholders, iterators.
//
// A dimension that the graph leaves open is filled: first from the shapes that the user names, then
// with the batch size (`batch_size`, else the largest first dimension that a fed tensor declares,
// else 32).
#ifndef HPLACER_TF_FED_SHAPES_H_
#define HPLACER_TF_FED_SHAPES_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/tensor_shape.pb.h"
#include "tensorflow/core/graph/graph.h"

namespace hplacer {

// By tensor, "name" or "name:1"; -1 is a dimension left open.
using NamedShapes = std::map<std::string, std::vector<int64_t>>;

// Of the outputs of a fed node, what the graph declares: TensorFlow knows no more before a step.
// Empty for other nodes and for handles.
std::vector<tensorflow::TensorShapeProto> KnownFedShapes(const tensorflow::Node& node);

// Fills unknown dimensions, so many of them with the batch size and others with 1, and makes an
// unknown rank a scalar; true if there were any.
bool FillShape(int64_t batch_size, tensorflow::TensorShapeProto* shape,
               int most_batches = std::numeric_limits<int>::max());

class FedShapes {
 public:
  // InvalidArgument if a name of `named` is not fed, or contradicts what the graph declares.
  absl::Status Resolve(const std::vector<tensorflow::Node*>& nodes, const NamedShapes& named,
                       int64_t batch_size);

  int64_t batch_size() const { return batch_size_; }

  // Of the outputs of a fed node, without unknown dimensions; empty for other nodes and for
  // handles. Counts the fed tensors that the batch size filled.
  std::vector<tensorflow::TensorShapeProto> Filled(const tensorflow::Node& node);

  int64_t num_filled() const { return num_filled_; }

 private:
  std::map<std::string, tensorflow::TensorShapeProto> named_;  // by "name:output"
  int64_t batch_size_ = 0;
  int64_t num_filled_ = 0;
};

}  // namespace hplacer

#endif  // HPLACER_TF_FED_SHAPES_H_
