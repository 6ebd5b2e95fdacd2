// What the Python bindings call of files whose headers need TensorFlow's.
//
// No type of TensorFlow or of absl appears here, nor in the other headers that python/tf_module.cc
// includes: so the bindings are compiled once for all TensorFlow releases.
#ifndef HPLACER_TF_API_H_
#define HPLACER_TF_API_H_

#include <string>
#include <vector>

#include "tf/captured_step.h"

namespace hplacer {

std::string BuiltForTensorFlow();  // "2.21.0"
std::string RunningTensorFlow();

// See pass.h. `defaults` is a serialised CustomGraphOptimizer; std::invalid_argument if it is none.
void RegisterPassesWith(const std::string& defaults);

// See placeholder_kernels.h. std::invalid_argument says what is wrong with the table.
void RegisterPlaceholderKernelsOf(const std::string& table);

// See pass_input.h.
std::vector<SessionDevice> OneKindOf(std::vector<SessionDevice> devices);

// Op types for which TensorFlow has a cost function, sorted.
std::vector<std::string> TensorFlowCostFunctions();

}  // namespace hplacer

#endif  // HPLACER_TF_API_H_
