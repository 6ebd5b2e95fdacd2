// The inputs of nodes, as TensorFlow writes them down: from their order the order of nodes follows
// (engine/problem/op_order.h).
#ifndef HPLACER_TF_ORDERED_INPUTS_H_
#define HPLACER_TF_ORDERED_INPUTS_H_

#include <cstdint>
#include <vector>

#include "tf/step.h"

namespace hplacer {

// The sources of each node's inputs, by position in the step; what is only waited for comes last.
using InputLists = std::vector<std::vector<int32_t>>;

// All inputs: what is only waited for by name.
InputLists OrderedInputs(const Step& step);

// Whether the order of its inputs is nothing to a node: Grappler sorts these by name when it looks
// for equal nodes ("tensorflow/core/grappler/utils/canonicalizer.cc").
bool Commutes(const tensorflow::Node& node);

// Sorts what the node at `position` reads, if it commutes. By then Grappler has removed what only
// hands on its input.
void SortCommuting(const Step& step, size_t position, std::vector<int32_t>* sources);

// So many of these are read, the first ones.
size_t NumDataInputs(const Step& step, size_t position);

// Positions.
void SortByName(const Step& step, std::vector<int32_t>::iterator begin,
                std::vector<int32_t>::iterator end);

}  // namespace hplacer

#endif  // HPLACER_TF_ORDERED_INPUTS_H_
