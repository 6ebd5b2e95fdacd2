// The canonical text of what decides how long an op's kernel takes: op type, attributes, dtypes and
// shapes. It keys measured costs, across processes and graphs:
//
//   MatMul{T=float,grad_a=false,...,transpose_b=true} float[32,128] float[10,128] -> float[32,10]
//
// Attributes come in alphabetical order, without those that name things (see IsNaming), that seed
// random numbers, that hold data, and those that begin with an underscore. Handles have the dtype
// "resource" or "variant" and the shape that TensorFlow infers for the handle.
#ifndef HPLACER_TF_OP_SIGNATURE_H_
#define HPLACER_TF_OP_SIGNATURE_H_

#include <string>

#include "tensorflow/core/grappler/costs/op_performance_data.pb.h"

namespace hplacer {

// "" for an op that runs functions: their names and bodies vary.
std::string OpSignature(const tensorflow::OpInfo& op);

}  // namespace hplacer

#endif  // HPLACER_TF_OP_SIGNATURE_H_
