// The order in which TensorFlow has a step's nodes when it runs them.
//
// The executor begins with the nodes that wait for nothing, and goes on with the consumers of what
// it ran, both in the order of the graph. That is not the order in which the nodes were made:
// Grappler finds what the step needs by a depth-first search from what is fetched, the last input
// first, and turns the result round ("tensorflow/core/grappler/utils/transitive_fanin.cc"). Then it
// sorts: what has all its inputs follows in the order in which they came
// ("tensorflow/core/grappler/utils/topological_sort.cc"). Where Grappler is switched off, the order
// is another one.
#ifndef HPLACER_TF_PRUNED_ORDER_H_
#define HPLACER_TF_PRUNED_ORDER_H_

#include <cstdint>
#include <vector>

#include "tf/step.h"

namespace hplacer {

// The sources of each node's inputs, by position in the step; what is only waited for comes last.
using InputLists = std::vector<std::vector<int32_t>>;

// All inputs, as TensorFlow writes a node down: what is only waited for by name.
InputLists OrderedInputs(const Step& step);

// So many of these are read, the first ones.
size_t NumDataInputs(const Step& step, size_t position);

// Positions.
void SortByName(const Step& step, std::vector<int32_t>::iterator begin,
                std::vector<int32_t>::iterator end);

// The rank of each node, by position, as the search leaves it. It depends on names and inputs, not
// on the step's order.
std::vector<int32_t> PrunedRanks(const Step& step, const InputLists& inputs);

}  // namespace hplacer

#endif  // HPLACER_TF_PRUNED_ORDER_H_
