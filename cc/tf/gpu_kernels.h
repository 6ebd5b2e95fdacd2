// The kernels that the GPU build of TensorFlow has and this one lacks, from the table beside
// hplacer_optimizer/capture/gpu_kernels.py, which describes its form.
#ifndef HPLACER_TF_GPU_KERNELS_H_
#define HPLACER_TF_GPU_KERNELS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorflow/core/framework/kernel_def.pb.h"

namespace hplacer {

// Of the table's JSON text. Left out are ops, attributes and types that this TensorFlow does not
// know, and kernels that overlap a registered one, which TensorFlow would refuse when it looks
// kernels up. InvalidArgument for a text that is no such table.
absl::StatusOr<std::vector<tensorflow::KernelDef>> MissingGpuKernels(const std::string& table);

}  // namespace hplacer

#endif  // HPLACER_TF_GPU_KERNELS_H_
