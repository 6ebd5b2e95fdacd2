#include "emulator/kernel_costs.h"

#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/grappler/costs/op_context.h"
#include "tf/op_estimate_table.h"
#include "tf/op_work.h"

namespace hplacer::emulator {
namespace {

using tensorflow::OpInfo;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr int64_t kMostCostElements = 64;  // of an input whose values the cost model may look at

// On CPUs, TensorFlow replaces ops by oneDNN's of another name, which cost what those did:
// "_MklMatMul" is MatMul, "_MklNativeFusedConv2D" is _FusedConv2D.
std::string PlainType(const std::string& type) {
  for (const char* prefix : {"_MklNative", "_Mkl"}) {
    if (type.rfind(prefix, 0) != 0) continue;
    const std::string plain = type.substr(strlen(prefix));
    return FindOpEstimate("_" + plain) != nullptr ? "_" + plain : plain;
  }
  return type;
}

// Estimates by device, kernel and shapes. A kernel's memory may be another's later: names are
// compared.
class Estimates {
 public:
  Cost Of(int device, const OpKernel& kernel, OpKernelContext* context) {
    const uint64_t key = Key(device, kernel, context);
    std::lock_guard<std::mutex> lock(mutex_);
    auto& [name, cost] = known_[key];
    if (name != kernel.name()) {
      name = kernel.name();
      cost = Estimate(device, kernel, context);
    }
    return cost;
  }

 private:
  static uint64_t Key(int device, const OpKernel& kernel, OpKernelContext* context) {
    uint64_t key = reinterpret_cast<uint64_t>(&kernel);
    const auto add = [&key](uint64_t value) {
      key = (key ^ value) * 0x9e3779b97f4a7c15u;
      key ^= key >> 29;
    };
    add(device);
    for (int i = 0; i < context->num_inputs(); ++i) {
      if (!context->has_input(i) || context->input_is_ref(i)) continue;
      const Tensor& input = context->input(i);
      add(input.dims());
      for (int d = 0; d < input.dims(); ++d) add(input.dim_size(d));
    }
    for (int i = 0; i < context->num_outputs(); ++i) {
      const Tensor* output = OutputOf(context, i);
      if (output == nullptr) continue;
      for (int d = 0; d < output->dims(); ++d) add(output->dim_size(d));
    }
    return key;
  }

  static const Tensor* OutputOf(OpKernelContext* context, int i) {
    return IsRefType(context->expected_output_dtype(i)) ? nullptr : context->mutable_output(i);
  }

  Cost Estimate(int device, const OpKernel& kernel, OpKernelContext* context) const {
    tensorflow::grappler::OpContext op;
    op.name = kernel.name();
    OpInfo& info = op.op_info;
    info.set_op(PlainType(kernel.type_string()));
    *info.mutable_attr() = kernel.def().attr();
    const auto describe = [](const Tensor& tensor, OpInfo::TensorProperties* properties) {
      properties->set_dtype(tensor.dtype());
      tensor.shape().AsProto(properties->mutable_shape());
    };
    for (int i = 0; i < context->num_inputs(); ++i) {
      OpInfo::TensorProperties* input = info.add_inputs();
      input->set_dtype(kernel.input_type(i));
      if (!context->has_input(i)) continue;
      // The op has run: what it destroyed is not there any more.
      if (kernel.type_string() == "DestroyTemporaryVariable") continue;
      if (context->input_is_ref(i)) {
        describe(context->mutable_input(i, /*lock_held=*/false), input);
        continue;
      }
      const Tensor& tensor = context->input(i);
      describe(tensor, input);
      const bool is_small = tensor.NumElements() <= kMostCostElements;
      if (is_small && tensorflow::DataTypeIsInteger(tensor.dtype())) {
        tensor.AsProtoTensorContent(input->mutable_value());
      }
    }
    for (int i = 0; i < context->num_outputs(); ++i) {
      OpInfo::TensorProperties* output = info.add_outputs();
      output->set_dtype(kernel.output_type(i));
      if (const Tensor* tensor = OutputOf(context, i)) describe(*tensor, output);
    }
    const OpWork work = estimator_.Estimate(std::move(op));
    if (device == kHost) return {0, WorkTimeNs(work, Machine::Get().host_rates())};
    if (work.kernels == 0 || work.is_host_only) return {};
    const Device& emulated = Machine::Get().devices()[device];
    return {emulated.launch_ns, WorkTimeNs(work, emulated.rates)};
  }

  WorkEstimator estimator_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::pair<std::string, Cost>> known_;
};

}  // namespace

bool Launches(const OpKernel& kernel) {
  const OpEstimate* estimate = FindOpEstimate(kernel.type_string());
  if (estimate != nullptr && estimate->rule == OpEstimate::Rule::kNoKernel) return false;
  for (const auto* types : {&kernel.input_memory_types(), &kernel.output_memory_types()}) {
    for (const tensorflow::MemoryType type : *types) {
      if (type == tensorflow::DEVICE_MEMORY) return true;
    }
  }
  return false;
}

Cost CostOf(int device, const OpKernel& kernel, OpKernelContext* context) {
  const bool on_host = device == kHost;
  if (const auto set = Machine::Get().FindCost(on_host, kernel.name())) return *set;
  if (!on_host && !Launches(kernel)) return {};
  const std::string type = PlainType(kernel.type_string());
  if (const auto set = Machine::Get().FindTypeCost(on_host, type)) return *set;
  static auto* estimates = new Estimates;
  return estimates->Of(device, kernel, context);
}

}  // namespace hplacer::emulator
