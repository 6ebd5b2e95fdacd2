#include "emulator/fused_batch_norm.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "emulator/kernels.h"

namespace hplacer::emulator {
namespace {

using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr int kNormInputs = 5;  // of FusedBatchNormV3; what is added follows

template <typename T>
void Finish(const Tensor* added, bool has_relu, Tensor* result) {
  T* values = static_cast<T*>(result->data());
  const T* others = added == nullptr ? nullptr : static_cast<const T*>(added->data());
  for (int64_t i = 0; i < result->NumElements(); ++i) {
    if (others != nullptr) values[i] += others[i];
    if (has_relu) values[i] = std::max(values[i], T(0));
  }
}

class FusedBatchNorm : public OpKernel {
 public:
  FusedBatchNorm(OpKernelConstruction* construction, std::unique_ptr<OpKernel> norm, bool has_relu)
      : OpKernel(construction), norm_(std::move(norm)), has_relu_(has_relu) {}

  void Compute(OpKernelContext* context) override {
    std::vector<Tensor> inputs, outputs;
    for (int i = 0; i < kNormInputs; ++i) inputs.push_back(context->input(i));
    if (!RunOn(std::move(inputs), norm_.get(), context, &outputs)) return;
    const Tensor* added = num_inputs() > kNormInputs ? &context->input(kNormInputs) : nullptr;
    switch (outputs[0].dtype()) {
      case tensorflow::DT_FLOAT:
        Finish<float>(added, has_relu_, &outputs[0]);
        break;
      case tensorflow::DT_HALF:
        Finish<Eigen::half>(added, has_relu_, &outputs[0]);
        break;
      default:
        Finish<tensorflow::bfloat16>(added, has_relu_, &outputs[0]);
    }
    for (int i = 0; i < num_outputs(); ++i) context->set_output(i, outputs[i]);
  }

 private:
  const std::unique_ptr<OpKernel> norm_;
  const bool has_relu_;
};

}  // namespace

std::unique_ptr<OpKernel> CreateFusedBatchNorm(OpKernelConstruction* construction) {
  NodeDef node = construction->def();
  if (node.op() != "_FusedBatchNormEx") return nullptr;
  std::string activation;
  if (absl::Status status = construction->GetAttr("activation_mode", &activation); !status.ok()) {
    construction->CtxFailure(status);
    return nullptr;
  }
  node.set_op("FusedBatchNormV3");
  node.mutable_attr()->erase("activation_mode");
  node.mutable_attr()->erase("num_side_inputs");
  while (node.input_size() > kNormInputs) node.mutable_input()->RemoveLast();
  std::unique_ptr<OpKernel> norm = CreateCpuKernel(construction, node, kNormInputs);
  if (norm == nullptr) return nullptr;
  return std::make_unique<FusedBatchNorm>(construction, std::move(norm), activation == "Relu");
}

}  // namespace hplacer::emulator
