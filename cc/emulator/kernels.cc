#include "emulator/kernels.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "emulator/channels_first.h"
#include "emulator/fused_batch_norm.h"
#include "emulator/kernel_costs.h"
#include "emulator/machine.h"
#include "emulator/registration.h"
#include "emulator/uncomputed.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/gpu_kernels.h"

namespace hplacer::emulator {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// OpKernelContext hides its parameters, of which a kernel that runs another one needs a copy.
template <auto kMember>
struct OpenedKernelContext {
  friend OpKernelContext::Params* ParamsOf(OpKernelContext* context) { return context->*kMember; }
};
OpKernelContext::Params* ParamsOf(OpKernelContext* context);
template struct OpenedKernelContext<&OpKernelContext::params_>;

constexpr int64_t kMostShapeElements = 64;  // of an input whose values may decide about shapes

bool IsRealNumber(DataType type) {
  return type == tensorflow::DT_FLOAT || type == tensorflow::DT_HALF ||
         type == tensorflow::DT_BFLOAT16 || type == tensorflow::DT_DOUBLE;
}

// Tells whether the outputs of a kernel that has run were only allocated, or written.
void NoteOutputs(OpKernelContext* context, bool is_uncomputed) {
  for (int i = 0; i < context->num_outputs(); ++i) {
    if (IsRefType(context->expected_output_dtype(i))) continue;
    const Tensor* output = context->mutable_output(i);
    if (output == nullptr || !tensorflow::DataTypeCanUseMemcpy(output->dtype())) continue;
    Uncomputed::Get().Set(output->data(), is_uncomputed);
  }
}

// Runs another kernel under its own name and memory types.
template <class Base>
class Forwarding : public Base {
 public:
  Forwarding(OpKernelConstruction* construction, std::unique_ptr<OpKernel> cpu)
      : Base(construction), cpu_(std::move(cpu)) {}
  const Tensor* const_tensor() const override { return cpu_->const_tensor(); }

 protected:
  std::unique_ptr<OpKernel> cpu_;
};

class AsyncKernel : public Forwarding<AsyncOpKernel> {
 public:
  using Forwarding::Forwarding;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    cpu_->AsAsync()->ComputeAsync(context, [context, done = std::move(done)] {
      NoteOutputs(context, /*is_uncomputed=*/false);
      done();
    });
  }
};

// Computes, or only allocates: see Machine::allocate_only_from.
class Kernel : public Forwarding<OpKernel> {
 public:
  Kernel(OpKernelConstruction* construction, std::unique_ptr<OpKernel> cpu)
      : Forwarding(construction, std::move(cpu)), version_(construction->graph_def_version()) {
    if (!tensorflow::OpRegistry::Global()->LookUp(type_string(), &op_).ok()) return;
    way_ = WayToAllocate();
  }

  void Compute(OpKernelContext* context) override {
    const int64_t from_bytes = Machine::Get().allocate_only_from();
    if (from_bytes < 0) {
      cpu_->Compute(context);
      return;
    }
    if (way_ != Way::kNone && AllocateOnly(context, from_bytes)) return;
    cpu_->Compute(context);
    NoteOutputs(context, /*is_uncomputed=*/false);
  }

 private:
  // How the op can be done without computing.
  enum class Way {
    kNone,
    kNothing,  // a variable is updated in place
    kPassRef,  // ... and handed on as a reference
    kOutputs,  // its outputs are real numbers in device memory, of shapes that can be inferred
  };

  Way WayToAllocate() const {
    if (!Launches(*this)) return Way::kNone;
    if (absl::StartsWith(type_string(), "ResourceApply")) return Way::kNothing;
    if (absl::StartsWith(type_string(), "Apply") && num_outputs() == 1 &&
        IsRefType(output_type(0))) {
      return Way::kPassRef;
    }
    if (num_outputs() == 0 || op_->shape_inference_fn == nullptr) return Way::kNone;
    for (int i = 0; i < num_outputs(); ++i) {
      if (!IsRealNumber(output_type(i))) return Way::kNone;
      if (output_memory_types()[i] != tensorflow::DEVICE_MEMORY) return Way::kNone;
    }
    return Way::kOutputs;
  }

  // False: it has to be computed.
  bool AllocateOnly(OpKernelContext* context, int64_t from_bytes) {
    if (way_ == Way::kNothing) return true;
    if (way_ == Way::kPassRef) {
      context->forward_ref_input_to_ref_output(0, 0);
      return true;
    }
    std::vector<TensorShape> shapes;
    int64_t bytes = 0;
    if (!InferShapes(context, &shapes, &bytes) || bytes < from_bytes) return false;
    std::vector<int> inputs(num_inputs());
    for (int i = 0; i < num_inputs(); ++i) inputs[i] = i;
    for (int i = 0; i < num_outputs(); ++i) {
      Tensor* output = nullptr;
      // As kernels of one element each do: the buffer of an input that nobody else reads is the
      // output's.
      const absl::Status status =
          context->forward_input_or_allocate_output(inputs, i, shapes[i], &output);
      if (!status.ok()) {
        context->SetStatus(status);
        return true;
      }
    }
    NoteOutputs(context, /*is_uncomputed=*/true);
    return true;
  }

  // False if the shapes depend on what cannot be looked at. `bytes`: of inputs and outputs.
  bool InferShapes(OpKernelContext* context, std::vector<TensorShape>* shapes, int64_t* bytes) {
    std::vector<Tensor> inputs(num_inputs());
    std::vector<const Tensor*> values;
    std::vector<tensorflow::PartialTensorShape> input_shapes;
    for (int i = 0; i < num_inputs(); ++i) {
      if (context->input_is_ref(i) || !context->has_input(i)) return false;
      inputs[i] = context->input(i);
      if (inputs[i].dtype() == tensorflow::DT_RESOURCE) return false;
      input_shapes.push_back(inputs[i].shape());
      const bool is_read =
          context->input_memory_type(i) == tensorflow::HOST_MEMORY ||
          (inputs[i].NumElements() <= kMostShapeElements && !IsRealNumber(inputs[i].dtype()));
      values.push_back(is_read ? &inputs[i] : nullptr);
      *bytes += static_cast<int64_t>(inputs[i].TotalBytes());
    }
    tensorflow::shape_inference::InferenceContext inference(version_, def(), op_->op_def,
                                                            input_shapes, values, {}, {});
    if (!inference.construction_status().ok()) return false;
    if (!inference.Run(op_->shape_inference_fn).ok()) return false;
    for (int i = 0; i < num_outputs(); ++i) {
      const auto inferred = inference.output(i);
      if (!inference.FullyDefined(inferred)) return false;
      TensorShape shape;
      for (int d = 0; d < inference.Rank(inferred); ++d) {
        shape.AddDim(inference.Value(inference.Dim(inferred, d)));
      }
      *bytes += shape.num_elements() * tensorflow::DataTypeSize(output_type(i));
      shapes->push_back(std::move(shape));
    }
    return true;
  }

  const tensorflow::OpRegistrationData* op_ = nullptr;
  const int version_;
  Way way_ = Way::kNone;
};

OpKernel* Create(OpKernelConstruction* construction) {
  std::unique_ptr<OpKernel> cpu = CreateFusedBatchNorm(construction);
  if (cpu == nullptr && construction->status().ok()) cpu = CreateChannelsFirst(construction);
  if (cpu == nullptr && construction->status().ok()) {
    cpu = CreateCpuKernel(construction, construction->def(), construction->num_inputs());
  }
  if (cpu == nullptr) return nullptr;
  if (cpu->AsAsync() != nullptr) return new AsyncKernel(construction, std::move(cpu));
  return new Kernel(construction, std::move(cpu));
}

}  // namespace

std::unique_ptr<OpKernel> CreateCpuKernel(OpKernelConstruction* construction,
                                          const tensorflow::NodeDef& node, int num_inputs) {
  const tensorflow::OpDef* op = nullptr;
  absl::Status status = tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op);
  OpKernel* kernel = nullptr;
  if (status.ok()) {
    const tensorflow::DataTypeSlice types = construction->input_types().subspan(0, num_inputs);
    auto properties =
        std::make_shared<tensorflow::NodeProperties>(op, node, types, construction->output_types());
    auto* device = construction->device();
    status = tensorflow::CreateOpKernel(
        tensorflow::DeviceType(tensorflow::DEVICE_CPU), device,
        device->GetAllocator(tensorflow::AllocatorAttributes()), construction->function_library(),
        construction->resource_manager(), properties, construction->graph_def_version(), &kernel);
  }
  if (!status.ok()) construction->CtxFailure(status);
  return std::unique_ptr<OpKernel>(kernel);
}

bool RunOn(std::vector<Tensor> inputs, OpKernel* kernel, OpKernelContext* context,
           std::vector<Tensor>* outputs) {
  std::vector<tensorflow::TensorValue> values;
  for (Tensor& input : inputs) values.emplace_back(&input);
  OpKernelContext::Params params = *ParamsOf(context);
  params.eigen_gpu_device = nullptr;  // it would be destroyed with this copy
  params.inputs = values;
  params.op_kernel = kernel;
  params.forward_from_array = nullptr;
  OpKernelContext inner(&params, kernel->num_outputs());
  kernel->Compute(&inner);
  if (!inner.status().ok()) {
    context->SetStatus(inner.status());
    return false;
  }
  for (int i = 0; i < kernel->num_outputs(); ++i) {
    const std::unique_ptr<Tensor> output(inner.release_output(i).tensor);
    outputs->push_back(output == nullptr ? Tensor() : *output);
  }
  return true;
}

void RegisterKernels() {
  std::ifstream stream(Machine::Get().kernels_file());
  std::stringstream text;
  text << stream.rdbuf();
  const auto missing = MissingGpuKernels(text.str());
  if (!missing.ok()) return;  // then ops are refused by name, as on a device without their kernels
  std::unordered_map<std::string, bool> has_twin;
  for (const tensorflow::KernelDef& kernel : *missing) {
    const auto [known, is_new] = has_twin.try_emplace(kernel.op(), false);
    if (is_new) {
      const tensorflow::KernelList all = tensorflow::GetRegisteredKernelsForOp(kernel.op());
      known->second = std::any_of(all.kernel().begin(), all.kernel().end(), [](const auto& other) {
        return other.device_type() == tensorflow::DEVICE_CPU;
      });
    }
    if (!known->second) continue;
    // The registry takes ownership of the definition.
    tensorflow::kernel_factory::OpKernelRegistrar(new tensorflow::KernelDef(kernel), "Emulated",
                                                  &Create);
  }
}

}  // namespace hplacer::emulator
