// Kernels that can be looked up but not run.
//
// Which ops a kind of device supports is the kernel registry's knowledge, and a TensorFlow built
// for CPUs has no GPU kernels. To capture a graph for a machine with GPUs, a process that runs
// nothing itself registers the GPU build's kernels by their definitions only.
#ifndef HPLACER_TF_PLACEHOLDER_KERNELS_H_
#define HPLACER_TF_PLACEHOLDER_KERNELS_H_

#include <string>

#include "absl/status/status.h"

namespace hplacer {

// `table`: see gpu_kernels.h. Also makes the type "GPU" known, with the GPU build's priority over
// CPUs.
absl::Status RegisterPlaceholderKernels(const std::string& table);

}  // namespace hplacer

#endif  // HPLACER_TF_PLACEHOLDER_KERNELS_H_
