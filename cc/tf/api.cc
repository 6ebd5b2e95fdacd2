#include "tf/api.h"

#include <stdexcept>

#include "tensorflow/c/c_api.h"
#include "tf/op_work.h"
#include "tf/pass.h"
#include "tf/pass_input.h"
#include "tf/placeholder_kernels.h"

namespace hplacer {
namespace {

// Found in the file by whoever cannot load it, to tell what it was built for.
[[gnu::used]] constexpr char kVersionMarker[] = "HPLACER_TF_VERSION=" HPLACER_TF_VERSION;

}  // namespace

std::string BuiltForTensorFlow() {
  return std::string(kVersionMarker).substr(sizeof("HPLACER_TF_VERSION=") - 1);
}

std::string RunningTensorFlow() { return TF_Version(); }

void RegisterPassesWith(const std::string& defaults) {
  tensorflow::RewriterConfig_CustomGraphOptimizer entry;
  if (!entry.ParseFromString(defaults)) {
    throw std::invalid_argument("not a serialised CustomGraphOptimizer");
  }
  RegisterPasses(entry);
}

void RegisterPlaceholderKernelsOf(const std::string& table) {
  const absl::Status status = RegisterPlaceholderKernels(table);
  if (!status.ok()) throw std::invalid_argument(std::string(status.message()));
}

std::vector<SessionDevice> OneKindOf(std::vector<SessionDevice> devices) {
  KeepOneKind(&devices);
  return devices;
}

std::vector<std::string> TensorFlowCostFunctions() { return WorkEstimator().CostFunctions(); }

}  // namespace hplacer
