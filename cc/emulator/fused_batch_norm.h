// _FusedBatchNormEx, which TensorFlow's remapper makes for GPUs of a batch normalization, what is
// added to it and its activation: the CPU has no such kernel, but one for its first part.
#ifndef HPLACER_EMULATOR_FUSED_BATCH_NORM_H_
#define HPLACER_EMULATOR_FUSED_BATCH_NORM_H_

#include <memory>

#include "tensorflow/core/framework/op_kernel.h"

namespace hplacer::emulator {

// Null if the node is another op; or after an error, which the construction has.
std::unique_ptr<tensorflow::OpKernel> CreateFusedBatchNorm(
    tensorflow::OpKernelConstruction* construction);

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_FUSED_BATCH_NORM_H_
