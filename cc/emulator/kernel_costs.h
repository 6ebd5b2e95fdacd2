// What a kernel costs on an emulated device: what was set for its name or its type, else what the
// cost model of this project (tf/op_work.h) says of its attributes and of the shapes that it read
// and wrote.
#ifndef HPLACER_EMULATOR_KERNEL_COSTS_H_
#define HPLACER_EMULATOR_KERNEL_COSTS_H_

#include "emulator/machine.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hplacer::emulator {

// Whether a GPU's kernel of the op would launch anything: it reads or writes device memory, and not
// only hands it on.
bool Launches(const tensorflow::OpKernel& kernel);

// Of a kernel that has run. `device` may be kHost.
Cost CostOf(int device, const tensorflow::OpKernel& kernel, tensorflow::OpKernelContext* context);

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_KERNEL_COSTS_H_
