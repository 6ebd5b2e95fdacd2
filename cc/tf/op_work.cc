#include "tf/op_work.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/grappler/costs/op_level_cost_estimator.h"
#include "tensorflow/core/platform/tensor_float_32_utils.h"
#include "tf/op_estimate_table.h"

namespace hplacer {
namespace {

using tensorflow::DataType;
using tensorflow::OpInfo;
using tensorflow::TensorShapeProto;
using tensorflow::grappler::OpContext;
using Tensor = OpInfo::TensorProperties;
using Rule = OpEstimate::Rule;

constexpr double kMaxEstimateNs = static_cast<double>(int64_t{1} << 50);  // 13 days

double Elements(const Tensor& tensor) {
  double elements = 1;
  for (const auto& dim : tensor.shape().dim()) elements *= static_cast<double>(dim.size());
  return std::max(elements, 0.0);
}

double LastDim(const Tensor& tensor) {
  const int rank = tensor.shape().dim_size();
  return rank == 0 ? 1
                   : std::max<double>(static_cast<double>(tensor.shape().dim(rank - 1).size()), 1);
}

double FirstDim(const Tensor& tensor) {
  return tensor.shape().dim_size() == 0
             ? 1
             : std::max<double>(static_cast<double>(tensor.shape().dim(0).size()), 1);
}

// Of the data; handles have none.
double Bytes(const Tensor& tensor) {
  return Elements(tensor) * tensorflow::DataTypeSize(tensorflow::BaseType(tensor.dtype()));
}

double Traffic(const OpInfo& info) {
  double bytes = 0;
  for (const Tensor& input : info.inputs()) bytes += Bytes(input);
  for (const Tensor& output : info.outputs()) bytes += Bytes(output);
  return bytes;
}

double LargestElements(const OpInfo& info) {
  double largest = 0;
  for (const Tensor& input : info.inputs()) largest = std::max(largest, Elements(input));
  for (const Tensor& output : info.outputs()) largest = std::max(largest, Elements(output));
  return largest;
}

// Input `index`, or the first output for -1; null if there is none.
const Tensor* TensorAt(const OpInfo& info, int index) {
  if (index < 0) return info.outputs_size() > 0 ? &info.outputs(0) : nullptr;
  return index < info.inputs_size() ? &info.inputs(index) : nullptr;
}

DataType ArithmeticType(const OpInfo& info) {
  bool is_quantized = false;
  const auto floating = [&is_quantized](const auto& tensors) {
    for (const Tensor& tensor : tensors) {
      const DataType dtype = tensorflow::BaseType(tensor.dtype());
      if (tensorflow::DataTypeIsFloating(dtype)) return dtype;
      if (dtype == tensorflow::DT_COMPLEX64) return tensorflow::DT_FLOAT;
      if (dtype == tensorflow::DT_COMPLEX128) return tensorflow::DT_DOUBLE;
      is_quantized |= dtype == tensorflow::DT_QINT8 || dtype == tensorflow::DT_QUINT8 ||
                      dtype == tensorflow::DT_INT8;
    }
    return tensorflow::DT_INVALID;
  };
  // A quantized contraction has floating inputs too: the ranges of its quantized ones.
  const DataType of_inputs = floating(info.inputs());
  if (is_quantized) return tensorflow::DT_INT8;
  if (of_inputs != tensorflow::DT_INVALID) return of_inputs;
  const DataType of_outputs = floating(info.outputs());
  return of_outputs == tensorflow::DT_INVALID ? tensorflow::DT_FLOAT : of_outputs;
}

bool IsInt32Only(const OpInfo& info) {
  const auto all = [](const auto& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
      return tensorflow::BaseType(tensor.dtype()) == tensorflow::DT_INT32;
    });
  };
  return info.outputs_size() > 0 && all(info.inputs()) && all(info.outputs());
}

double WindowElements(const OpInfo& info) {
  const auto ksize = info.attr().find("ksize");
  double elements = 1;
  if (ksize == info.attr().end()) return elements;
  for (const int64_t size : ksize->second.list().i()) elements *= static_cast<double>(size);
  return std::max(elements, 1.0);
}

void CountUpdate(const OpInfo& info, const OpEstimate& estimate, OpWork* work) {
  const Tensor* update = nullptr;
  for (const Tensor& input : info.inputs()) {
    if (tensorflow::IsRefType(input.dtype())) continue;
    if (update == nullptr || Bytes(input) > Bytes(*update)) update = &input;
  }
  if (update == nullptr) return;
  work->flops = estimate.flops * Elements(*update);
  work->bytes = estimate.tensors * Bytes(*update);
}

void CountGather(const OpInfo& info, const OpEstimate& estimate, OpWork* work) {
  double outputs = 0;
  for (const Tensor& output : info.outputs()) {
    outputs += Bytes(output);
    work->flops += estimate.flops * Elements(output);
  }
  work->bytes = 2 * outputs;
  for (int i = 1; i < info.inputs_size(); ++i) work->bytes += Bytes(info.inputs(i));
}

// Of rules that read the tensors `x` and `w`.
void CountPair(const OpInfo& info, const OpEstimate& estimate, OpWork* work) {
  const Tensor* const x = TensorAt(info, estimate.x);
  const Tensor* const w = TensorAt(info, estimate.w);
  if (x == nullptr || w == nullptr) return;
  if (estimate.rule == Rule::kRows) {
    const double share = Elements(*w) / FirstDim(*x);  // more than 1 if rows are read repeatedly
    work->flops = estimate.flops * share * Elements(*x);
    work->bytes += (share - 1) * Bytes(*x);
  } else if (estimate.rule == Rule::kConvolution) {
    work->flops = estimate.flops * Elements(*x) * Elements(*w) / LastDim(*w);
  } else {
    work->flops = estimate.flops * Elements(*x) / LastDim(*x) * Elements(*w);
    if (estimate.is_stepwise) work->kernels = static_cast<int64_t>(std::min(FirstDim(*x), 1e6));
  }
}

void CountByRule(const OpInfo& info, const OpEstimate& estimate, OpWork* work) {
  work->bytes = Traffic(info);
  switch (estimate.rule) {
    case Rule::kNoKernel:
      work->kernels = 0;
      work->bytes = 0;
      break;
    case Rule::kLike:
      break;
    case Rule::kPerElement:
      work->flops = estimate.flops * LargestElements(info);
      break;
    case Rule::kUpdate:
      CountUpdate(info, estimate, work);
      break;
    case Rule::kGather:
      CountGather(info, estimate, work);
      break;
    case Rule::kRows:
    case Rule::kConvolution:
    case Rule::kWeights:
      CountPair(info, estimate, work);
      break;
    case Rule::kWindow:
      if (const Tensor* const x = TensorAt(info, estimate.x); x != nullptr) {
        work->flops = estimate.flops * Elements(*x) * WindowElements(info);
      }
      break;
    case Rule::kCubic:
      if (const Tensor* const x = TensorAt(info, 0); x != nullptr) {
        work->flops = estimate.flops * Elements(*x) * LastDim(*x);
      }
      break;
    case Rule::kFourier: {
      const double elements = LargestElements(info);
      work->flops = estimate.flops * elements * std::log2(std::max(elements, 1.0));
      break;
    }
  }
}

bool IsTrue(const OpInfo& info, const char* attr) {
  const auto it = info.attr().find(attr);
  return it != info.attr().end() && it->second.b();
}

// The dimension of a matrix product that is summed over, from one operand.
double InnerDim(const OpInfo& info, int operand) {
  const TensorShapeProto& shape = info.inputs(operand).shape();
  if (shape.dim_size() < 2) return 1;
  const bool is_transposed = operand == 0 ? IsTrue(info, "transpose_a") || IsTrue(info, "adj_x")
                                          : IsTrue(info, "transpose_b") || IsTrue(info, "adj_y");
  const bool is_last = (operand == 0) != is_transposed;
  return static_cast<double>(shape.dim(shape.dim_size() - (is_last ? 1 : 2)).size());
}

// Shapes that were filled in may not fit together. TensorFlow would log an error and count nothing.
bool CountMismatchedProduct(const OpInfo& info, OpWork* work) {
  if (!absl::StrContains(info.op(), "MatMul") || info.inputs_size() < 2) return false;
  const double left = InnerDim(info, 0), right = InnerDim(info, 1);
  if (left == right || info.outputs_size() == 0) return false;
  work->flops = 2 * Elements(info.outputs(0)) * std::max(left, right);
  work->bytes = Traffic(info);
  return true;
}

// An equation that TensorFlow's function does not know: two flops (one for a single operand) for
// each combination of labels. A label's size is its largest in any operand.
double EinsumFlops(const OpInfo& info) {
  const auto equation = info.attr().find("equation");
  if (equation == info.attr().end()) return 0;
  const std::string inputs = equation->second.s().substr(0, equation->second.s().find("->"));
  const std::vector<std::string> operands = absl::StrSplit(inputs, ',');
  std::map<char, double> sizes;
  double ellipsis = 1;
  for (int i = 0; i < info.inputs_size() && i < static_cast<int>(operands.size()); ++i) {
    const TensorShapeProto& shape = info.inputs(i).shape();
    const int dots = static_cast<int>(std::count(operands[i].begin(), operands[i].end(), '.'));
    const int broadcast = shape.dim_size() - (static_cast<int>(operands[i].size()) - dots);
    int dim = 0;
    double covered = 1;
    for (size_t c = 0; c < operands[i].size() && dim < shape.dim_size(); ++c) {
      if (operands[i][c] != '.') {
        double& size = sizes[operands[i][c]];
        size = std::max(size, static_cast<double>(shape.dim(dim++).size()));
        continue;
      }
      for (int k = 0; k < broadcast && dim < shape.dim_size(); ++k) {
        covered *= static_cast<double>(shape.dim(dim++).size());
      }
      c += 2;  // three dots
    }
    ellipsis = std::max(ellipsis, covered);
  }
  double flops = ellipsis * (info.inputs_size() > 1 ? 2 : 1);
  for (const auto& [label, size] : sizes) flops *= size;
  return flops;
}

// TensorFlow divides by dimensions of a filter, and an empty one may be an output.
bool IsEmptyConvolution(const OpInfo& info) {
  return absl::StrContains(info.op(), "Conv2") && info.outputs_size() > 0 &&
         Elements(info.outputs(0)) == 0;
}

// Whether GPUs that can compute products of float32 in TF32 do so in this process. The variable is
// that of NVIDIA's libraries.
bool ComputesInTf32() {
  const char* const override = std::getenv("NVIDIA_TF32_OVERRIDE");
  if (override != nullptr && override == std::string_view("0")) return false;
  return tsl::tensor_float_32_execution_enabled();
}

double PeakFlopsPerNs(const KindRates& kind, DataType dtype) {
  auto it = kind.flops_per_s.find(tensorflow::DataTypeString(dtype));
  if (dtype == tensorflow::DT_HALF) it = kind.flops_per_s.find("float16");
  if (dtype == tensorflow::DT_FLOAT) it = kind.flops_per_s.find("float32");
  if (dtype == tensorflow::DT_DOUBLE) it = kind.flops_per_s.find("float64");
  if (it == kind.flops_per_s.end()) it = kind.flops_per_s.find("float32");
  if (const auto tf32 = kind.flops_per_s.find("tf32");
      tf32 != kind.flops_per_s.end() && dtype == tensorflow::DT_FLOAT && ComputesInTf32()) {
    it = tf32;
  }
  return it == kind.flops_per_s.end() ? 0 : it->second / 1e9;
}

}  // namespace

// TensorFlow's estimator, for its counts.
class WorkEstimator::Counter : public tensorflow::grappler::OpLevelCostEstimator {
 public:
  // False if it has no counts for this op.
  bool Count(const OpContext& context, OpWork* work) const {
    tensorflow::grappler::NodeCosts counts;
    if (!PredictNodeCosts(context, &counts).ok() || counts.has_costs) return false;
    if (counts.minimum_cost_op) {
      work->kernels = 0;
      return true;
    }
    work->flops = std::max<double>(static_cast<double>(counts.num_compute_ops), 0);
    work->bytes = std::max<double>(static_cast<double>(counts.num_bytes_accessed()), 0);
    return true;
  }

  std::vector<std::string> OpTypes() const {
    std::vector<std::string> op_types(persistent_ops_.begin(), persistent_ops_.end());
    for (const auto& [op_type, function] : device_cost_impl_) op_types.push_back(op_type);
    for (const auto& [op_type, cost] : elementwise_ops_) op_types.push_back(op_type);
    std::sort(op_types.begin(), op_types.end());
    return op_types;
  }
};

WorkEstimator::WorkEstimator() : counter_(std::make_unique<Counter>()) {}
WorkEstimator::~WorkEstimator() = default;

OpWork WorkEstimator::Estimate(OpContext context) const {
  OpInfo& info = context.op_info;
  OpWork work;
  work.dtype = ArithmeticType(info);
  work.is_host_only = IsInt32Only(info);
  const OpEstimate* const own = FindOpEstimate(info.op());
  if (own != nullptr && own->rule != Rule::kLike) {
    CountByRule(info, *own, &work);
    return work;
  }
  if (own != nullptr) info.set_op(own->like);
  if (CountMismatchedProduct(info, &work)) return work;
  if (IsEmptyConvolution(info) || !counter_->Count(context, &work)) work.bytes = Traffic(info);
  if (work.flops == 0 && info.op() == "Einsum") work.flops = EinsumFlops(info);
  return work;
}

std::vector<std::string> WorkEstimator::CostFunctions() const { return counter_->OpTypes(); }

int64_t WorkTimeNs(const OpWork& work, const KindRates& kind) {
  const int64_t launch_ns = kind.launches_ahead ? 0 : kind.launch_overhead_ns;
  const int64_t executor_ns = std::min(kind.executor_overhead_ns, launch_ns);
  if (work.kernels == 0) return executor_ns;
  const bool is_cpu = kind.type == "CPU";
  if (!is_cpu && work.is_host_only && kind.launches_ahead) return 0;  // launches nothing
  const int64_t launches = is_cpu ? 1 : work.kernels;
  const int64_t overhead_ns = !is_cpu && work.is_host_only ? executor_ns : launch_ns * launches;
  const double peak = PeakFlopsPerNs(kind, work.dtype);
  const double bandwidth = kind.memory_bytes_per_s / 1e9;
  double estimate_ns = 0;
  if (peak > 0) estimate_ns += std::ceil(work.flops / peak);
  if (bandwidth > 0) estimate_ns += std::ceil(work.bytes / bandwidth);
  return overhead_ns + static_cast<int64_t>(std::min(estimate_ns, kMaxEstimateNs));
}

int64_t NumLaunches(const OpWork& work) { return work.is_host_only ? 0 : work.kernels; }

}  // namespace hplacer
