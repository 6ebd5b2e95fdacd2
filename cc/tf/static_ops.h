// Which ops of a step TensorFlow replaces by constants before it runs the step.
//
// Grappler reads the shapes that inference knows, and computes once what depends on constants only
// ("tensorflow/core/grappler/optimizers/constant_folding.cc"; its rules are followed as far as they
// matter to placements). At run time such an op is a Const: it reads nothing, so no tensor is sent
// to it. It still waits for the ops that it has control edges from, unless these are constants too.
//
// Inputs: a step, and what shape inference knows of it without any assumption. The analysis visits
// every edge once.
#ifndef HPLACER_TF_STATIC_OPS_H_
#define HPLACER_TF_STATIC_OPS_H_

#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor_shape.pb.h"
#include "tensorflow/core/grappler/costs/op_performance_data.pb.h"
#include "tf/costs.h"
#include "tf/step.h"

namespace hplacer {

// True if the rank and every dimension are known.
bool IsKnownShape(const tensorflow::TensorShapeProto& shape);

// True for op types whose result may follow from shapes alone ("Shape", "ZerosLike", ...).
bool MayFollowFromShapes(const std::string& op_type);

// Whether the result of such an op follows from these shapes, in which unknown dimensions are
// negative.
bool FollowsFromShapes(const std::string& op_type,
                       const std::vector<tensorflow::OpInfo::TensorProperties>& inputs,
                       const std::vector<tensorflow::OpInfo::TensorProperties>& outputs);

// By position: whether the node is a constant at run time. `costs` are those of the step's nodes.
std::vector<bool> FindStaticOps(const Step& step, const std::vector<OpCosts>& costs);

}  // namespace hplacer

#endif  // HPLACER_TF_STATIC_OPS_H_
