#include "emulator/swapping.h"

#include <utility>

#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace hplacer::emulator {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::AsyncOpKernel;
using tensorflow::Device;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr const char *kToHost = "_CopyFromGpuToHost", *kToGpu = "_CopyFromHostToGpu";

// Copies a tensor between a GPU's memory and the host's, on the stream for that direction.
class Swap : public AsyncOpKernel {
 public:
  explicit Swap(OpKernelConstruction* construction)
      : AsyncOpKernel(construction), is_to_host_(type_string() == kToHost) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& input = context->input(0);
    AllocatorAttributes attributes;
    attributes.set_on_host(is_to_host_);
    attributes.set_gpu_compatible(is_to_host_);
    Tensor* output = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, input.shape(), &output, attributes),
                         done);
    auto finish = [context, done = std::move(done)](const absl::Status& status) {
      context->SetStatus(status);
      done();
    };
    auto* device = static_cast<Device*>(context->device());
    if (is_to_host_) {
      context->op_device_context()->CopyDeviceTensorToCPU(&input, name(), device, output,
                                                          std::move(finish));
    } else {
      context->op_device_context()->CopyCPUTensorToDevice(&input, device, output,
                                                          std::move(finish));
    }
  }

 private:
  const bool is_to_host_;
};

void Register(const char* op, const char* on_host) {
  const tensorflow::OpDef* known = nullptr;
  if (tensorflow::OpRegistry::Global()->LookUpOpDef(op, &known).ok()) return;
  tensorflow::OpRegistry::Global()->Register([op](tensorflow::OpRegistrationData* data) {
    return tensorflow::OpDefBuilder(op)
        .Input("input: T")
        .Output("output: T")
        .Attr("T: type")
        .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
          context->set_output(0, context->input(0));
          return absl::OkStatus();
        })
        .Finalize(data);
  });
  const tensorflow::KernelDef* definition = tensorflow::KernelDefBuilder(op)
                                                .Device(tensorflow::DEVICE_GPU)
                                                .HostMemory(on_host)
                                                .Build();  // the registry takes it
  tensorflow::kernel_factory::OpKernelRegistrar(
      definition, "Swap",
      [](OpKernelConstruction* construction) -> OpKernel* { return new Swap(construction); });
}

}  // namespace

void RegisterSwapping() {
  Register(kToHost, "output");
  Register(kToGpu, "input");
}

}  // namespace hplacer::emulator
