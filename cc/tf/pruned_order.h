// The order in which TensorFlow has a step's nodes when it runs them.
//
// The executor begins with the nodes that wait for nothing, and goes on with the consumers of what
// it ran, both in the order of the graph. That is not the order in which the nodes were made:
// Grappler finds what the step needs by a depth-first search from what is fetched, the last input
// first, and turns the result round ("tensorflow/core/grappler/utils/transitive_fanin.cc"). Then it
// sorts: what has all its inputs follows in the order in which they came
// ("tensorflow/core/grappler/utils/topological_sort.cc"). In between, its remapper puts the nodes
// into another order, in which what reads a node comes by the number of the output that it reads
// (MutableGraphView::SortTopologically in "tensorflow/core/grappler/utils/graph_view.cc"). Where
// Grappler is switched off, the order is another one.
#ifndef HPLACER_TF_PRUNED_ORDER_H_
#define HPLACER_TF_PRUNED_ORDER_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "tf/step.h"

namespace hplacer {

// The sources of each node's inputs, by position in the step; what is only waited for comes last.
using InputLists = std::vector<std::vector<int32_t>>;

// All inputs, as TensorFlow writes a node down: what is only waited for by name.
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

// The rank of each node, by position, as the search leaves it. It depends on names and inputs, not
// on the step's order.
std::vector<int32_t> PrunedRanks(const Step& step, const InputLists& inputs);

// What reads or waits for an id. Ids are positions, or whatever else is ordered.
struct Follower {
  int32_t id;
  int32_t output;  // of what it reads; kOnlyWaits
};
inline constexpr int32_t kOnlyWaits = std::numeric_limits<int32_t>::max();
using Followers = std::vector<std::vector<Follower>>;  // by id

// All ids: what has all its inputs follows in the order in which they came, by rank among those of
// one. Without those of a cycle and behind it. Sorts the followers.
std::vector<int32_t> TopologicalOrder(const std::vector<int32_t>& rank, Followers* followers);

// The rank of each id as the remapper leaves it, which found all ids in this topological order.
// Sorts the followers.
std::vector<int32_t> RemappedRanks(const std::vector<int32_t>& order, Followers* followers);

}  // namespace hplacer

#endif  // HPLACER_TF_PRUNED_ORDER_H_
