#include "emulator/channels_first.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/kernels.h"

namespace hplacer::emulator {
namespace {

using tensorflow::AttrValue;
using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Which inputs and outputs of an op are images, and which inputs are shapes of images.
struct Images {
  std::vector<int> inputs, shapes;
  bool is_output;
};

const Images* FindImages(const std::string& type) {
  static const auto* const images = new std::unordered_map<std::string, Images>{
      {"Conv2D", {{0}, {}, true}},
      {"_FusedConv2D", {{0}, {}, true}},
      {"Conv2DBackpropInput", {{2}, {0}, true}},
      {"Conv2DBackpropFilter", {{0, 2}, {}, false}},
      {"DepthwiseConv2dNative", {{0}, {}, true}},
      {"DepthwiseConv2dNativeBackpropInput", {{2}, {0}, true}},
      {"DepthwiseConv2dNativeBackpropFilter", {{0, 2}, {}, false}},
      {"MaxPool", {{0}, {}, true}},
      {"MaxPoolV2", {{0}, {}, true}},
      {"MaxPoolGrad", {{0, 1, 2}, {}, true}},
      {"MaxPoolGradV2", {{0, 1, 2}, {}, true}},
      {"MaxPoolGradGrad", {{0, 1, 2}, {}, true}},
      {"AvgPool", {{0}, {}, true}},
      {"AvgPoolGrad", {{1}, {0}, true}},
      {"Conv3D", {{0}, {}, true}},
      {"Conv3DBackpropInputV2", {{2}, {0}, true}},
      {"Conv3DBackpropFilterV2", {{0, 2}, {}, false}},
      {"MaxPool3D", {{0}, {}, true}},
      {"MaxPool3DGrad", {{0, 1, 2}, {}, true}},
      {"MaxPool3DGradGrad", {{0, 1, 2}, {}, true}},
      {"AvgPool3D", {{0}, {}, true}},
      {"AvgPool3DGrad", {{1}, {0}, true}},
      {"DepthToSpace", {{0}, {}, true}},
      {"SpaceToDepth", {{0}, {}, true}},
  };
  const auto found = images->find(type);
  return found == images->end() ? nullptr : &found->second;
}

// Where each dimension of the result comes from: channels last of N C ..., and back.
std::vector<int> ToLast(int rank) {
  std::vector<int> order{0};
  for (int d = 2; d < rank; ++d) order.push_back(d);
  order.push_back(1);
  return order;
}

std::vector<int> ToFirst(int rank) {
  std::vector<int> order{0, rank - 1};
  for (int d = 1; d < rank - 1; ++d) order.push_back(d);
  return order;
}

TensorShape Permuted(const TensorShape& shape, const std::vector<int>& order) {
  TensorShape result;
  for (const int d : order) result.AddDim(shape.dim_size(d));
  return result;
}

void Transpose(const Tensor& from, const std::vector<int>& order, Tensor* to) {
  const int rank = from.dims();
  const size_t element = tensorflow::DataTypeSize(from.dtype());
  std::vector<int64_t> strides(rank, 1), position(rank, 0);
  for (int d = rank - 2; d >= 0; --d) strides[d] = strides[d + 1] * from.dim_size(d + 1);
  const char* source = static_cast<const char*>(from.data());
  char* target = static_cast<char*>(to->data());
  const int64_t inner = to->dim_size(rank - 1), stride = strides[order[rank - 1]];
  const int64_t rows = inner == 0 ? 0 : to->NumElements() / inner;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t at = 0;
    for (int d = 0; d < rank - 1; ++d) at += position[d] * strides[order[d]];
    for (int64_t i = 0; i < inner; ++i, at += stride, target += element) {
      memcpy(target, source + at * static_cast<int64_t>(element), element);
    }
    for (int d = rank - 2; d >= 0 && ++position[d] == to->dim_size(d); --d) position[d] = 0;
  }
}

class ChannelsFirstKernel : public OpKernel {
 public:
  ChannelsFirstKernel(OpKernelConstruction* construction, std::unique_ptr<OpKernel> cpu,
                      const Images* images)
      : OpKernel(construction), cpu_(std::move(cpu)), images_(images) {}

  void Compute(OpKernelContext* context) override {
    std::vector<Tensor> inputs(num_inputs());
    for (int i = 0; i < num_inputs(); ++i) inputs[i] = context->input(i);
    for (const int i : images_->inputs) {
      const std::vector<int> order = ToLast(inputs[i].dims());
      Tensor last;
      OP_REQUIRES_OK(context, context->allocate_temp(inputs[i].dtype(),
                                                     Permuted(inputs[i].shape(), order), &last));
      Transpose(inputs[i], order, &last);
      inputs[i] = last;
    }
    for (const int i : images_->shapes) inputs[i] = ShapeWithChannelsLast(inputs[i]);

    std::vector<Tensor> outputs;
    if (!RunOn(std::move(inputs), cpu_.get(), context, &outputs)) return;
    const Tensor& result = outputs[0];
    if (!images_->is_output) {
      context->set_output(0, result);
      return;
    }
    const std::vector<int> order = ToFirst(result.dims());
    Tensor* first = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, Permuted(result.shape(), order), &first));
    Transpose(result, order, first);
  }

 private:
  static Tensor ShapeWithChannelsLast(const Tensor& shape) {
    Tensor last(shape.dtype(), shape.shape());
    const std::vector<int> order = ToLast(static_cast<int>(shape.NumElements()));
    for (size_t d = 0; d < order.size(); ++d) {
      if (shape.dtype() == tensorflow::DT_INT64) {
        last.vec<int64_t>()(d) = shape.vec<int64_t>()(order[d]);
      } else {
        last.vec<int32_t>()(d) = shape.vec<int32_t>()(order[d]);
      }
    }
    return last;
  }

  const std::unique_ptr<OpKernel> cpu_;
  const Images* const images_;
};

// Lists with a number, or two, for each dimension.
void MoveChannelsLast(AttrValue* value) {
  auto* numbers = value->mutable_list()->mutable_i();
  const int rank = numbers->size() > 5 ? numbers->size() / 2 : numbers->size();
  if (rank < 4) return;
  const int each = numbers->size() / rank;
  const std::vector<int64_t> before(numbers->begin(), numbers->end());
  const std::vector<int> order = ToLast(rank);
  for (int d = 0; d < rank; ++d) {
    for (int k = 0; k < each; ++k) numbers->Set(d * each + k, before[order[d] * each + k]);
  }
}

}  // namespace

std::unique_ptr<OpKernel> CreateChannelsFirst(OpKernelConstruction* construction) {
  const NodeDef& node = construction->def();
  const Images* images = FindImages(node.op());
  const auto format = node.attr().find("data_format");
  if (images == nullptr || format == node.attr().end()) return nullptr;
  const bool is_flat = format->second.s() == "NCHW";
  if (!is_flat && format->second.s() != "NCDHW") return nullptr;
  NodeDef last = node;
  auto& attributes = *last.mutable_attr();
  attributes["data_format"].set_s(is_flat ? "NHWC" : "NDHWC");
  for (const char* name : {"strides", "dilations", "ksize", "explicit_paddings"}) {
    if (const auto found = attributes.find(name); found != attributes.end()) {
      MoveChannelsLast(&found->second);
    }
  }
  std::unique_ptr<OpKernel> cpu = CreateCpuKernel(construction, last, construction->num_inputs());
  if (cpu == nullptr) return nullptr;
  return std::make_unique<ChannelsFirstKernel>(construction, std::move(cpu), images);
}

}  // namespace hplacer::emulator
