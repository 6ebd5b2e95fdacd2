#include "tf/placeholder_kernels.h"

#include <memory>
#include <vector>

#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/gpu_kernels.h"

namespace hplacer {
namespace {

constexpr int kGpuPriority = 210;  // TensorFlow's own for GPUs; CPUs have 60 to 70

class NoDevices : public tensorflow::DeviceFactory {
 public:
  absl::Status ListPhysicalDevices(std::vector<std::string>*) override { return absl::OkStatus(); }
  absl::Status CreateDevices(const tensorflow::SessionOptions&, const std::string&,
                             std::vector<std::unique_ptr<tensorflow::Device>>*) override {
    return absl::OkStatus();
  }
};

tensorflow::OpKernel* RefuseToRun(tensorflow::OpKernelConstruction* construction) {
  construction->CtxFailure(
      absl::UnimplementedError("a placeholder kernel, registered to plan for another machine"));
  return nullptr;
}

}  // namespace

absl::Status RegisterPlaceholderKernels(const std::string& table) {
  const absl::StatusOr<std::vector<tensorflow::KernelDef>> missing = MissingGpuKernels(table);
  if (!missing.ok()) return missing.status();
  if (tensorflow::DeviceFactory::GetFactory("GPU") == nullptr) {
    tensorflow::DeviceFactory::Register("GPU", std::make_unique<NoDevices>(), kGpuPriority,
                                        /*is_pluggable_device=*/false);
  }
  for (const tensorflow::KernelDef& kernel : *missing) {
    // The registry takes ownership of the definition.
    tensorflow::kernel_factory::OpKernelRegistrar(new tensorflow::KernelDef(kernel), "Placeholder",
                                                  &RefuseToRun);
  }
  return absl::OkStatus();
}

}  // namespace hplacer
