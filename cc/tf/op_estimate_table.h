// Our own estimates of work, by op type: where TensorFlow's OpLevelCostEstimator has no cost
// function, or charges for a copy that the kernel does not make.
//
// An estimate is a rule with one or two numbers. The numbers count arithmetic as the kernels do it
// per element; a transcendental function (exp, log, tanh, sqrt, a quotient excepted) counts 10.
// docs/reference/costs.md lists the whole table, and a test compares the two.
#ifndef HPLACER_TF_OP_ESTIMATE_TABLE_H_
#define HPLACER_TF_OP_ESTIMATE_TABLE_H_

#include <string>
#include <vector>

namespace hplacer {

struct OpEstimate {
  enum class Rule {
    kNoKernel,     // hands buffers, handles or shapes on
    kLike,         // TensorFlow's cost function of the op type `like`
    kPerElement,   // flops x elements of the largest tensor; traffic: inputs + outputs
    kUpdate,       // of a variable in place: n elements of the largest input that is no handle and
                   // no reference; flops x n; traffic: `tensors` x the bytes of n
    kGather,       // flops x output elements; traffic: outputs twice + all inputs but the first
    kRows,         // reads the rows of input `x` that input `w` counts; flops x their elements;
                   // traffic: these rows, inputs after the first, outputs
    kConvolution,  // flops x elements of input or output `x` x elements of the filter `w` / its
                   // last dimension (-1: the output); traffic: inputs + outputs
    kWindow,   // flops x elements of the tensor `x` (-1: the output) x the product of attr ksize
    kWeights,  // flops x rows of input `x` (elements / last dimension) x elements of input `w`
    kCubic,    // flops x elements of the first input x its last dimension
    kFourier,  // flops x n x log2(n), n: the elements of the largest tensor
  };

  Rule rule = Rule::kPerElement;
  double flops = 0;
  double tensors = 0;
  int x = 0;
  int w = 0;
  bool is_stepwise = false;  // kWeights: launches a kernel for each step, the first dimension of x
  std::string like;
};

// Null if the op type is not in the table.
const OpEstimate* FindOpEstimate(const std::string& op_type);

// One sentence: what is counted, and which bytes are moved.
std::string DescribeOpEstimate(const OpEstimate& estimate);

// The op types of the table, sorted.
std::vector<std::string> EstimatedOpTypes();

}  // namespace hplacer

#endif  // HPLACER_TF_OP_ESTIMATE_TABLE_H_
