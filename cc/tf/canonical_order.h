// An order of a graph's vertices that follows from their colours and edges alone.
//
// Colour refinement with individualisation, along one path: vertices that differ in their
// neighbours' colours get different colours; where that ends, one of several alike vertices gets a
// colour of its own, and refinement goes on. The order of two isomorphic graphs maps one onto the
// other, as long as vertices that refinement cannot tell apart are symmetric. Where they are not,
// the certificates may differ although the graphs are isomorphic; equal certificates always mean
// that the orders are an isomorphism (but for collisions of 64-bit hashes).
//
// Time is O((vertices + arcs) log vertices), since of the parts of a split class the largest is
// never looked at again (Hopcroft 1971; Paige and Tarjan, "Three partition refinement algorithms",
// SIAM J. Comput. 1987). Refinement as in McKay and Piperno, "Practical graph isomorphism, II",
// J. Symb. Comput. 2014, without their search tree.
#ifndef HPLACER_TF_CANONICAL_ORDER_H_
#define HPLACER_TF_CANONICAL_ORDER_H_

#include <cstdint>
#include <vector>

namespace hplacer {

struct ColoredGraph {
  struct Arc {
    int32_t source;
    int32_t target;
    uint64_t label;
  };
  std::vector<uint64_t> colors;  // by vertex
  std::vector<Arc> arcs;
};

struct CanonicalOrder {
  std::vector<int32_t> vertices;  // colours ascend
  uint64_t certificate = 0;       // hash of colours and arcs in this order
};

CanonicalOrder FindCanonicalOrder(const ColoredGraph& graph);

}  // namespace hplacer

#endif  // HPLACER_TF_CANONICAL_ORDER_H_
