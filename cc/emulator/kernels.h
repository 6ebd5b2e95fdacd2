// Kernels of an emulated GPU that run the CPU's: device memory is memory of this process.
#ifndef HPLACER_EMULATOR_KERNELS_H_
#define HPLACER_EMULATOR_KERNELS_H_

#include <memory>
#include <vector>

#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hplacer::emulator {

// The CPU's kernel of a node, which reads the first `num_inputs` of what the constructed kernel
// reads. Null after an error, which the construction has.
std::unique_ptr<tensorflow::OpKernel> CreateCpuKernel(
    tensorflow::OpKernelConstruction* construction, const tensorflow::NodeDef& node,
    int num_inputs);

// Runs another kernel on these inputs in the place of the context's own. False after an error,
// which the context has.
bool RunOn(std::vector<tensorflow::Tensor> inputs, tensorflow::OpKernel* kernel,
           tensorflow::OpKernelContext* context, std::vector<tensorflow::Tensor>* outputs);

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_KERNELS_H_
