// A problem's graph with clusters of ops in place of ops: a smaller problem of nearly equal
// answers.
//
// Multilevel search (Hendrickson and Leland, "A Multilevel Algorithm for Partitioning Graphs", SC
// 1995) moves whole clusters first. A coarse problem is an ordinary `Problem`: the same simulator
// scores it, so that a placement of it is judged by its schedule and not by a cut. One coarse op
// stands for ops that run one after the other; it needs all their inputs to start and gives all
// their outputs when it ends.
//
// Matching. Clusters must not make cycles. With any labelling that rises along every arc, an arc
// (u, v) with label(v) = label(u) + 1 is the only way from u to v, so that contracting it alone is
// safe (Herrmann et al., "Multilevel Algorithms for Acyclic Partitioning of Directed Acyclic
// Graphs", SIAM J. Scientific Computing 2019); pairs of equal label are safe too. Pairs that make a
// cycle together are taken apart again. Labels are in turn the earliest and the latest possible, so
// that sources get next to their consumers. Among its neighbours a small op takes the one to which
// the most transfer time goes, in proportion to the work of both.
//
// Only ops whose units have the same candidates are matched. Clusters that share a unit are one
// unit of the coarse problem. Memory of the coarse problem is an estimate: what a cluster passes on
// is held until it is read, what it keeps to itself while it runs.

#ifndef HPLACER_ENGINE_SEARCH_COARSENING_H_
#define HPLACER_ENGINE_SEARCH_COARSENING_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

class Coarsening {
 public:
  // Keeps a reference.
  Coarsening(const Problem& problem, uint64_t seed);

  // Matches until at most `target` clusters are left, none with more work than `max_work_ns`, or no
  // pair is found. Returns whether there are fewer clusters than before.
  bool Shrink(int32_t target, int64_t max_work_ns);

  int32_t num_clusters() const { return static_cast<int32_t>(work_ns_.size()); }
  const std::vector<int32_t>& cluster() const { return cluster_; }  // [n]

  // The problem whose ops are the present clusters.
  Problem Contract() const;

 private:
  struct Arc {
    int32_t to;
    int64_t transfer_ns;  // both ends on different devices
  };
  struct Adjacency {
    std::vector<int32_t> ptr;
    std::vector<Arc> arcs;
  };

  void SetArcs(std::vector<std::pair<uint64_t, int64_t>>* pairs);
  std::vector<int32_t> Labels(bool latest) const;
  bool MatchOnce(bool latest, int64_t max_work_ns);
  int32_t BestPartner(int32_t u, const std::vector<int32_t>& label,
                      const std::vector<int32_t>& partner, int64_t max_work_ns) const;
  bool MayMerge(int32_t u, int32_t v, int64_t max_work_ns) const;
  void SplitCycles(const std::vector<int32_t>& partner, std::vector<int32_t>* merged) const;
  void Merge(const std::vector<int32_t>& partner);
  int32_t FindUnit(int32_t unit) const;

  const Problem& problem_;
  uint64_t seed_;
  bool latest_ = true;
  std::vector<int32_t> cluster_;         // [n]
  std::vector<int64_t> work_ns_;         // [clusters]
  std::vector<int32_t> unit_;            // [clusters] a unit of one of its ops
  mutable std::vector<int32_t> parent_;  // [U] union-find over units
  std::vector<int64_t> unit_work_ns_;    // [U] of roots
  std::vector<int32_t> kind_of_unit_;    // [U] equal candidates
  Adjacency out_, in_;                   // of clusters
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_COARSENING_H_
