// The ops with which Grappler's memory optimizer moves tensors to the host and back.
//
// Where it expects a GPU's memory not to suffice, it adds them to the graph. Only TensorFlow's
// builds for GPUs know them ("tensorflow/core/grappler/optimizers/gpu_swapping_ops.cc",
// "gpu_swapping_kernels.cc"). Without them every optimizer that comes later fails, and the graph
// runs as it was written.
#ifndef HPLACER_EMULATOR_SWAPPING_H_
#define HPLACER_EMULATOR_SWAPPING_H_

namespace hplacer::emulator {

// Registers those that this TensorFlow does not know, with kernels for GPUs.
void RegisterSwapping();

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_SWAPPING_H_
