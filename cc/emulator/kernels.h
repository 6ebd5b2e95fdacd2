// Kernels of an emulated GPU that run the CPU's: device memory is memory of this process.
#ifndef HPLACER_EMULATOR_KERNELS_H_
#define HPLACER_EMULATOR_KERNELS_H_

#include <memory>

#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hplacer::emulator {

// The CPU's kernel of a node. Null after an error, which the construction has.
std::unique_ptr<tensorflow::OpKernel> CreateCpuKernel(
    tensorflow::OpKernelConstruction* construction, const tensorflow::NodeDef& node);

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_KERNELS_H_
