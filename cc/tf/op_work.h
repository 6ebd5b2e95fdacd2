// How much work one op is, from its shapes: floating-point operations and bytes moved; and how long
// that takes on a kind of device.
//
// Sources, in this order: our own table (op_estimate_table.h); TensorFlow's OpLevelCostEstimator
// ("tensorflow/core/grappler/costs"), of which only the counts are used, never its device rates;
// for all other op types the bytes of inputs and outputs.
//
//   time = overhead + flops / peak of the dtype + bytes / memory bandwidth
//
// The sum, not the maximum, is TensorFlow's model too: arithmetic and traffic do not overlap. An op
// without a kernel takes the executor's time only. On an accelerator, ops on int32 alone run on the
// host (TensorFlow registers them with host memory) and launch nothing either. Arithmetic in
// float32 has the rate "tf32" where the kind has one, unless this process switched TF32 off.
#ifndef HPLACER_TF_OP_WORK_H_
#define HPLACER_TF_OP_WORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/types.pb.h"
#include "tensorflow/core/grappler/costs/op_context.h"
#include "tf/captured_step.h"

namespace hplacer {

struct OpWork {
  double flops = 0;
  double bytes = 0;     // read and written
  int64_t kernels = 1;  // launches on an accelerator; 0: there is no kernel
  bool is_host_only = false;
  tensorflow::DataType dtype = tensorflow::DT_FLOAT;  // of the arithmetic
};

class WorkEstimator {
 public:
  WorkEstimator();
  ~WorkEstimator();

  // All shapes of `context` must be known.
  OpWork Estimate(tensorflow::grappler::OpContext context) const;

  // Op types for which this TensorFlow has a cost function, sorted.
  std::vector<std::string> CostFunctions() const;

 private:
  class Counter;
  std::unique_ptr<Counter> counter_;
};

// Where ops are launched ahead, without launches.
int64_t WorkTimeNs(const OpWork& work, const KindRates& kind);

// How many kernels an accelerator's host thread launches.
int64_t NumLaunches(const OpWork& work);

}  // namespace hplacer

#endif  // HPLACER_TF_OP_WORK_H_
