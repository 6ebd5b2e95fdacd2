// Which ops of a step TensorFlow replaces by one of their inputs before it runs the step.
//
// Grappler knows that a product with ones, a quotient by ones, and a sum or a difference with zeros
// is what the other input is ("tensorflow/core/grappler/optimizers/constant_folding.cc"). At run
// time such an op is an Identity. Keras writes many: an activation x * sigmoid(beta * x) has a beta
// of 1, and a random number between 0 and 1 is scaled and shifted. Where an op of the step changes
// what it reads, as ops on references do, Grappler makes a copy instead, and nothing is found.
//
// Inputs: a step, and what is known of its nodes. Time: linear in the step's edges and in the sizes
// of the constants that such ops read.
#ifndef HPLACER_TF_NEUTRAL_OPS_H_
#define HPLACER_TF_NEUTRAL_OPS_H_

#include <cstdint>
#include <vector>

#include "tf/costs.h"
#include "tf/step.h"

namespace hplacer {

inline constexpr int32_t kComputes = -1;

// By position: the number of the input that the node hands on as it is, or kComputes.
std::vector<int32_t> FindNeutralOps(const Step& step, const std::vector<bool>& is_static,
                                    const std::vector<OpCosts>& costs);

}  // namespace hplacer

#endif  // HPLACER_TF_NEUTRAL_OPS_H_
