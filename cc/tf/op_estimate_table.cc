#include "tf/op_estimate_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace hplacer {
namespace {

using Rule = OpEstimate::Rule;

struct Row {
  OpEstimate estimate;
  std::vector<const char*> op_types;
};

OpEstimate NoKernel() { return {Rule::kNoKernel, 0, 0, 0, 0, false, ""}; }
OpEstimate Like(std::string op) { return {Rule::kLike, 0, 0, 0, 0, false, std::move(op)}; }
OpEstimate PerElement(double flops) { return {Rule::kPerElement, flops, 0, 0, 0, false, ""}; }
OpEstimate Update(double flops, double tensors) {
  return {Rule::kUpdate, flops, tensors, 0, 0, false, ""};
}
OpEstimate Gather(double flops) { return {Rule::kGather, flops, 0, 0, 0, false, ""}; }
OpEstimate Rows(double flops, int data, int indices) {
  return {Rule::kRows, flops, 0, data, indices, false, ""};
}
OpEstimate Convolution(double flops, int image, int filter) {
  return {Rule::kConvolution, flops, 0, image, filter, false, ""};
}
OpEstimate Window(double flops, int image) {
  return {Rule::kWindow, flops, 0, image, 0, false, ""};
}
OpEstimate Weights(double flops, int x, int weights, bool is_stepwise) {
  return {Rule::kWeights, flops, 0, x, weights, is_stepwise, ""};
}
OpEstimate Cubic(double flops) { return {Rule::kCubic, flops, 0, 0, 0, false, ""}; }
OpEstimate Fourier(double flops) { return {Rule::kFourier, flops, 0, 0, 0, false, ""}; }

std::vector<Row> PlumbingRows() {
  return {
      // Values and their names.
      {NoKernel(), {"NoOp",           "Const",         "HostConst",
                    "GuaranteeConst", "Identity",      "IdentityN",
                    "RefIdentity",    "StopGradient",  "PreventGradient",
                    "Placeholder",    "PlaceholderV2", "PlaceholderWithDefault",
                    "FakeParam",      "EnsureShape",   "_Arg",
                    "_Retval",        "_DeviceArg",    "_DeviceRetval",
                    "_Send",          "_Recv",         "_HostSend",
                    "_HostRecv",      "Empty",         "Assert",
                    "ControlTrigger"}},
      // Shapes: on a GPU they are computed on the host.
      {NoKernel(),
       {"Reshape", "Squeeze", "ExpandDims", "Bitcast", "Shape", "ShapeN", "Size", "Rank",
        "VariableShape", "ConcatOffset", "BroadcastArgs", "BroadcastGradientArgs"}},
      // Control flow.
      {NoKernel(),
       {"Switch", "RefSwitch", "_SwitchN", "Merge", "RefMerge", "Enter", "RefEnter", "Exit",
        "RefExit", "NextIteration", "RefNextIteration", "LoopCond"}},
      // Handles of variables, tables and containers; lists and arrays hold references.
      {NoKernel(),
       {"VarHandleOp",
        "_VarHandlesOp",
        "ReadVariableOp",
        "_ReadVariablesOp",
        "DisableCopyOnRead",
        "Variable",
        "VariableV2",
        "TemporaryVariable",
        "DestroyTemporaryVariable",
        "VarIsInitializedOp",
        "IsVariableInitialized",
        "DestroyResourceOp",
        "HashTable",
        "HashTableV2",
        "MutableHashTable",
        "MutableHashTableV2",
        "MutableHashTableOfTensorsV2",
        "MutableDenseHashTableV2",
        "LookupTableSizeV2",
        "IteratorV2",
        "IteratorGetNext",
        "IteratorGetNextSync",
        "EmptyTensorList",
        "TensorListReserve",
        "TensorListLength",
        "TensorListElementShape",
        "TensorListResize",
        "TensorListGetItem",
        "TensorListSetItem",
        "TensorListPushBack",
        "TensorListPopBack",
        "TensorArrayV3",
        "TensorArrayGradV3",
        "TensorArraySizeV3",
        "TensorArrayCloseV3",
        "TensorArrayReadV3",
        "TensorArrayWriteV3",
        "StackV2",
        "StackPushV2",
        "StackPopV2",
        "StackCloseV2"}},
  };
}

std::vector<Row> ContractionRows() {
  return {
      {Like("BatchMatMulV2"), {"BatchMatMulV3"}},
      {Like("MatMul"), {"_FusedMatMul"}},
      {Like("Conv2D"), {"_FusedConv2D", "QuantizedConv2D"}},
      {Like("DepthwiseConv2dNative"), {"_FusedDepthwiseConv2dNative"}},
      {Like("Conv2DBackpropInput"), {"Conv2DBackpropInputV2"}},
      {Like("Conv2DBackpropFilter"), {"Conv2DBackpropFilterV2"}},
      {Like("FusedBatchNorm"), {"FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx"}},
      {Like("FusedBatchNormGrad"),
       {"FusedBatchNormGradV2", "FusedBatchNormGradV3", "_FusedBatchNormGradEx"}},
      {Like("MaxPool"), {"MaxPoolWithArgmax"}},
      {Convolution(2, -1, 1), {"Conv3D"}},
      {Convolution(2, 2, 1), {"Conv3DBackpropInput", "Conv3DBackpropInputV2"}},
      {Convolution(2, 2, -1), {"Conv3DBackpropFilter", "Conv3DBackpropFilterV2"}},
      {Window(1, -1), {"AvgPool3D", "MaxPool3D"}},
      {Window(1, 1), {"AvgPool3DGrad"}},
      {Window(1, 2), {"MaxPool3DGrad", "MaxPool3DGradGrad", "MaxPoolGradGrad"}},
      {PerElement(9), {"MaxPoolV2", "MaxPoolGradV2", "MaxPoolGradWithArgmax"}},
      {PerElement(18), {"Dilation2D", "Dilation2DBackpropInput", "Dilation2DBackpropFilter"}},
      {Weights(2, 1, 4, true), {"BlockLSTM", "BlockLSTMV2"}},
      {Weights(4, 1, 4, true), {"BlockLSTMGrad", "BlockLSTMGradV2"}},
      {Weights(2, 0, 3, false), {"LSTMBlockCell"}},
      {Weights(3, 0, 2, false), {"GRUBlockCell", "GRUBlockCellGrad"}},
      {Weights(2, 0, 3, true), {"CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"}},
      {Weights(4, 0, 3, true), {"CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"}},
      {Cubic(1.0 / 3), {"Cholesky"}},
      {Cubic(2.0 / 3),
       {"MatrixDeterminant", "LogMatrixDeterminant", "MatrixSolve", "MatrixSolveLs", "Lu"}},
      {Cubic(1), {"MatrixTriangularSolve"}},
      {Cubic(2), {"MatrixInverse", "CholeskyGrad", "Qr"}},
      {Cubic(20), {"Svd", "SelfAdjointEigV2", "Eig", "MatrixSquareRoot", "MatrixLogarithm"}},
      {Fourier(5),
       {"FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D", "RFFT", "RFFT2D", "RFFT3D", "IRFFT",
        "IRFFT2D", "IRFFT3D"}},
  };
}

std::vector<Row> ElementwiseRows() {
  return {
      {PerElement(1),
       {"Abs",           "BiasAddV1",     "BiasAddGrad",     "BitwiseAnd", "BitwiseOr",
        "BitwiseXor",    "CheckNumerics", "ComplexAbs",      "Conj",       "DataFormatDimMap",
        "Invert",        "IsFinite",      "IsInf",           "IsNan",      "LeftShift",

        "MulNoNan",      "NextAfter",     "PopulationCount", "RightShift", "QuantizedRelu",
        "AccumulateNV2", "InTopKV2",      "InTopK"}},
      {PerElement(2),
       {"ClipByValue", "DivNoNan", "EluGrad", "LeakyRelu", "LeakyReluGrad", "Relu6Grad", "SeluGrad",
        "Xdivy"}},
      {PerElement(3),
       {"ReciprocalGrad", "SigmoidGrad", "Softsign", "SoftsignGrad", "SqrtGrad", "TanhGrad",
        "Cross", "AdjustContrastv2"}},
      {PerElement(4),
       {"RsqrtGrad", "FakeQuantWithMinMaxArgsGradient", "FakeQuantWithMinMaxVarsGradient",
        "FakeQuantWithMinMaxVarsPerChannelGradient"}},
      {PerElement(6),
       {"FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel",
        "QuantizeAndDequantizeV3"}},
      {PerElement(10),
       {"Acosh", "Angle", "Asinh", "Atanh", "Cosh", "Elu", "Pow", "Selu", "Sinh", "Softplus",
        "SoftplusGrad", "Xlogy", "Xlog1py"}},
      {PerElement(20),
       {"Digamma", "Erfinv", "Ndtri", "AdjustHue", "AdjustSaturation", "HSVToRGB", "RGBToHSV"}},
      {PerElement(100), {"Betainc", "Igamma", "Igammac", "IgammaGradA", "Polygamma", "Zeta"}},
      // Softmax and losses: maximum, subtraction, exponential, sum, quotient and logarithm.
      {PerElement(14), {"LogSoftmax"}},
      {PerElement(16), {"SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"}},
      {PerElement(100), {"CTCLoss", "CTCLossV2"}},
      {PerElement(30), {"LRN"}},
      {PerElement(60), {"LRNGrad"}},
      {PerElement(30), {"LSTMBlockCellGrad"}},
      {PerElement(4), {"ResizeBilinearGrad", "CropAndResizeGradImage", "CropAndResizeGradBoxes"}},
      {PerElement(32), {"ResizeBicubic", "ResizeBicubicGrad", "ResizeArea", "ScaleAndTranslate"}},
      // Reductions and scans, per element read.
      {PerElement(1),
       {"Any",
        "ArgMin",
        "Bincount",
        "Cumprod",
        "Cumsum",
        "DenseBincount",
        "Mean",
        "SegmentMax",
        "SegmentMaxV2",
        "SegmentMean",
        "SegmentMin",
        "SegmentMinV2",
        "SegmentProd",
        "SegmentProdV2",
        "SegmentSum",
        "SegmentSumV2",
        "UnsortedSegmentMax",
        "UnsortedSegmentMin",
        "UnsortedSegmentProd",
        "UnsortedSegmentSum"}},
      {PerElement(2), {"EuclideanNorm", "L2Loss"}},
      {PerElement(20),
       {"CumulativeLogsumexp", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"}},
      // Random numbers, per number drawn: Philox, and what turns it into the distribution.
      {PerElement(10),
       {"RandomUniform", "RandomUniformInt", "StatelessRandomUniform", "StatelessRandomUniformV2",
        "StatelessRandomUniformInt", "StatelessRandomUniformIntV2", "StatefulUniform",
        "StatefulUniformInt", "RandomShuffle"}},
      {PerElement(30),
       {"RandomStandardNormal", "TruncatedNormal", "ParameterizedTruncatedNormal",
        "StatelessRandomNormal", "StatelessRandomNormalV2", "StatelessTruncatedNormal",
        "StatelessTruncatedNormalV2", "StatefulStandardNormalV2", "StatefulTruncatedNormal",
        "Multinomial", "StatelessMultinomial"}},
      {PerElement(100),
       {"RandomGamma", "RandomGammaGrad", "RandomPoissonV2", "StatelessRandomGammaV2",
        "StatelessRandomPoisson"}},
  };
}

std::vector<Row> MemoryRows() {
  return {
      {PerElement(0),
       {"Assign",
        "BatchToSpace",
        "BatchToSpaceND",
        "BroadcastTo",
        "Complex",
        "Concat",
        "ConjugateTranspose",
        "Copy",
        "DeepCopy",
        "Diag",
        "DiagPart",
        "DynamicPartition",
        "DynamicStitch",
        "Imag",
        "InvertPermutation",
        "MatrixBandPart",
        "MatrixDiag",
        "MatrixDiagPart",
        "MatrixDiagPartV3",
        "MatrixDiagV3",
        "MatrixSetDiag",
        "MatrixSetDiagV3",
        "MirrorPad",
        "MirrorPadGrad",
        "OnesLike",
        "Pad",
        "PadV2",
        "ParallelConcat",
        "ParallelDynamicStitch",
        "Real",
        "ResizeNearestNeighbor",
        "ResizeNearestNeighborGrad",
        "Reverse",
        "ReverseSequence",
        "ReverseV2",
        "Roll",
        "ScatterNd",
        "Snapshot",
        "SpaceToBatch",
        "SpaceToBatchND",
        "SplitV",
        "StridedSliceGrad",
        "TensorArrayScatterV3",
        "TensorArraySplitV3",
        "TensorListFromTensor",
        "TensorListScatter",
        "TensorListScatterV2",
        "TensorListSplit",
        "TensorScatterUpdate",
        "TensorStridedSliceUpdate",
        "ZerosLike"}},
      {PerElement(1),
       {"TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"}},
      {Gather(0),
       {"ResourceGather", "ResourceGatherNd", "TensorArrayGatherV3", "TensorArrayConcatV3",
        "TensorListStack", "TensorListGather", "TensorListConcat", "TensorListConcatV2"}},
      {Rows(1, 0, 1),
       {"SparseSegmentSum", "SparseSegmentSumWithNumSegments", "SparseSegmentMean",
        "SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtN",
        "SparseSegmentSqrtNWithNumSegments"}},
  };
}

std::vector<Row> UpdateRows() {
  return {
      {Update(0, 2),
       {"ResourceScatterUpdate", "ResourceScatterNdUpdate", "ScatterNdUpdate",
        "ResourceStridedSliceAssign"}},
      {Update(1, 3),
       {"AssignAdd", "AssignSub", "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterMul",
        "ResourceScatterDiv", "ResourceScatterMax", "ResourceScatterMin", "ScatterNdAdd",
        "ScatterNdSub", "ResourceScatterNdAdd", "ResourceScatterNdSub"}},
      {Update(2, 3), {"ApplyGradientDescent", "ResourceApplyGradientDescent"}},
      {Update(12, 3),
       {"ApplyProximalGradientDescent", "ResourceApplyProximalGradientDescent",
        "SparseApplyProximalGradientDescent", "ResourceSparseApplyProximalGradientDescent"}},
      {Update(4, 5),
       {"ApplyMomentum", "ResourceApplyMomentum", "SparseApplyMomentum",
        "ResourceSparseApplyMomentum", "ResourceApplyKerasMomentum",
        "ResourceSparseApplyKerasMomentum"}},
      {Update(20, 5),
       {"ApplyAdagrad", "ApplyAdagradV2", "ResourceApplyAdagrad", "ResourceApplyAdagradV2",
        "SparseApplyAdagrad", "SparseApplyAdagradV2", "ResourceSparseApplyAdagrad",
        "ResourceSparseApplyAdagradV2", "ApplyAddSign", "ResourceApplyAddSign", "ApplyPowerSign",
        "ResourceApplyPowerSign", "ApplyProximalAdagrad", "ResourceApplyProximalAdagrad",
        "SparseApplyProximalAdagrad", "ResourceSparseApplyProximalAdagrad"}},
      {Update(24, 7),
       {"ApplyAdam", "ResourceApplyAdam", "ApplyAdaMax", "ResourceApplyAdaMax", "ApplyRMSProp",
        "ResourceApplyRMSProp", "SparseApplyRMSProp", "ResourceSparseApplyRMSProp",
        "ApplyAdagradDA", "ResourceApplyAdagradDA", "SparseApplyAdagradDA",
        "ResourceSparseApplyAdagradDA"}},
      {Update(36, 7),
       {"ApplyAdadelta", "ResourceApplyAdadelta", "SparseApplyAdadelta",
        "ResourceSparseApplyAdadelta", "ApplyFtrl", "ApplyFtrlV2", "ResourceApplyFtrl",
        "ResourceApplyFtrlV2", "SparseApplyFtrl", "SparseApplyFtrlV2", "ResourceSparseApplyFtrl",
        "ResourceSparseApplyFtrlV2"}},
      {Update(26, 9),
       {"ResourceApplyAdamWithAmsgrad", "ApplyCenteredRMSProp", "ResourceApplyCenteredRMSProp",
        "SparseApplyCenteredRMSProp", "ResourceSparseApplyCenteredRMSProp"}},
  };
}

using Table = absl::flat_hash_map<std::string_view, OpEstimate>;

const Table& EstimateTable() {
  static const Table* const table = [] {
    auto* const filled = new Table;
    for (const auto& rows :
         {PlumbingRows(), ContractionRows(), ElementwiseRows(), MemoryRows(), UpdateRows()}) {
      for (const Row& row : rows) {
        for (const char* op_type : row.op_types) filled->emplace(op_type, row.estimate);
      }
    }
    return filled;
  }();
  return *table;
}

// "the output" or "input 2"
std::string TensorText(int index) {
  return index < 0 ? std::string("the output") : absl::StrCat("input ", index);
}

std::string FlopsText(double flops) {
  const int64_t thirds = static_cast<int64_t>(flops * 3 + 0.5);
  std::string number = thirds % 3 == 0 ? absl::StrCat(thirds / 3) : absl::StrCat(thirds, "/3");
  return absl::StrCat(number, flops == 1 ? " flop" : " flops");
}

}  // namespace

const OpEstimate* FindOpEstimate(const std::string& op_type) {
  const auto it = EstimateTable().find(op_type);
  return it == EstimateTable().end() ? nullptr : &it->second;
}

std::vector<std::string> EstimatedOpTypes() {
  std::vector<std::string> op_types;
  for (const auto& [op_type, estimate] : EstimateTable()) op_types.emplace_back(op_type);
  std::sort(op_types.begin(), op_types.end());
  return op_types;
}

std::string DescribeOpEstimate(const OpEstimate& estimate) {
  const std::string flops = FlopsText(estimate.flops);
  switch (estimate.rule) {
    case Rule::kNoKernel:
      return "no kernel";
    case Rule::kLike:
      return absl::StrCat("TensorFlow's function for ", estimate.like);
    case Rule::kPerElement:
      return estimate.flops == 0 ? "inputs + outputs"
                                 : absl::StrCat(flops, " per element; inputs + outputs");
    case Rule::kUpdate:
      return absl::StrCat(flops, " per element of the update, moved ", estimate.tensors, " times");
    case Rule::kGather:
      return "outputs twice + inputs but the first";
    case Rule::kRows:
      return absl::StrCat(flops, " per element of the rows of ", TensorText(estimate.x), " that ",
                          TensorText(estimate.w), " counts; these rows + other inputs + outputs");
    case Rule::kConvolution:
      return absl::StrCat(flops, " x elements of ", TensorText(estimate.x), " x filter (",
                          TensorText(estimate.w), ") / its output channels; inputs + outputs");
    case Rule::kWindow:
      return absl::StrCat(flops, " x elements of ", TensorText(estimate.x),
                          " x window; inputs + outputs");
    case Rule::kWeights:
      return absl::StrCat(flops, " x rows of ", TensorText(estimate.x), " x elements of ",
                          TensorText(estimate.w), "; inputs + outputs",
                          estimate.is_stepwise ? "; a launch per step" : "");
    case Rule::kCubic:
      return absl::StrCat(flops, " x elements of input 0 x its last dimension; inputs + outputs");
    case Rule::kFourier:
      return absl::StrCat(flops, " x n log2(n) of n elements; inputs + outputs");
  }
  return "";
}

}  // namespace hplacer
