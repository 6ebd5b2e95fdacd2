// Kernels in the format NCHW (NCDHW), which TensorFlow's layout optimizer gives GPUs and the CPU's
// kernels refuse: what they read and write is transposed.
#ifndef HPLACER_EMULATOR_CHANNELS_FIRST_H_
#define HPLACER_EMULATOR_CHANNELS_FIRST_H_

#include <memory>

#include "tensorflow/core/framework/op_kernel.h"

namespace hplacer::emulator {

// Null if the node is none of these; or after an error, which the construction has.
std::unique_ptr<tensorflow::OpKernel> CreateChannelsFirst(
    tensorflow::OpKernelConstruction* construction);

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_CHANNELS_FIRST_H_
