#include "engine/search/unit_clusters.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <utility>

#include "engine/problem/candidates.h"
#include "engine/problem/mean_costs.h"
#include "engine/problem/topological_order.h"

namespace hplacer {
namespace {

class Agglomeration {
 public:
  Agglomeration(const Problem& problem, int32_t clusters_per_device);

  // Joins until at most `size` clusters are left, as far as candidates allow.
  void ShrinkTo(int32_t size);

  // The cluster of each unit, numbered by mean position.
  std::vector<int32_t> Labels() const;

 private:
  struct Pair {
    double rating;
    int32_t u, v;  // u < v

    bool operator<(const Pair& other) const {
      if (rating != other.rating) return rating < other.rating;
      return std::pair(u, v) > std::pair(other.u, other.v);  // the lower ids come first
    }
  };

  int32_t Root(int32_t unit) const {
    while (parent_[unit] != unit) unit = parent_[unit];
    return unit;
  }
  void AddTransfer(int32_t u, int32_t v, int64_t ns);
  double Rating(int32_t u, int32_t v, int64_t transfer_ns) const;
  void Push(int32_t u, int32_t v, int64_t transfer_ns);
  void PushAll();
  void Join(int32_t u, int32_t v);
  bool JoinBestPair();
  bool JoinInOrder(int32_t size, bool only_loners);
  bool IsLoner(int32_t cluster) const;

  std::vector<int32_t> parent_, candidates_id_;
  std::vector<int64_t> work_ns_;
  std::vector<double> position_sum_, position_count_;
  std::vector<std::unordered_map<int32_t, int64_t>> transfer_ns_;  // by neighbour
  std::priority_queue<Pair> pairs_;
  int32_t num_clusters_ = 0;
  int64_t max_work_ns_ = 0;
};

Agglomeration::Agglomeration(const Problem& problem, int32_t clusters_per_device)
    : parent_(problem.num_units()),
      candidates_id_(problem.num_units()),
      work_ns_(problem.num_units()),
      position_sum_(problem.num_units()),
      position_count_(problem.num_units()),
      transfer_ns_(problem.num_units()),
      num_clusters_(problem.num_units()) {
  std::iota(parent_.begin(), parent_.end(), 0);
  const MeanCosts costs(problem);
  const std::vector<int32_t>& units = problem.units();
  const std::vector<int32_t> order = TopologicalOrder(problem);
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t unit = units[order[i]];
    work_ns_[unit] += costs.op_ns[order[i]];
    position_sum_[unit] += static_cast<double>(i);
    position_count_[unit] += 1;
  }
  const int64_t total_ns = std::accumulate(work_ns_.begin(), work_ns_.end(), int64_t{0});
  const int64_t least = int64_t{clusters_per_device} * std::max(problem.num_devices(), 1);
  max_work_ns_ = total_ns / least + 1;

  std::vector<int32_t> last_reader(problem.num_units(), -1);  // the tensor that it last read
  for (int32_t tensor = 0; tensor < problem.num_tensors(); ++tensor) {
    const int32_t src = units[problem.tensor_op()[tensor]];
    for (int32_t at = problem.consumer_ptr()[tensor]; at < problem.consumer_ptr()[tensor + 1];
         ++at) {
      const int32_t dst = units[problem.consumers()[at]];
      if (last_reader[dst] == tensor) continue;  // a tensor goes to a unit once
      last_reader[dst] = tensor;
      AddTransfer(src, dst, costs.tensor_ns[tensor]);
    }
  }
  // A barrier keeps nothing together: everything waits for everything.
  const StepGraph& graph = problem.step_graph();
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    const int32_t control = graph.ops[op].control;
    if (control == kNoControl) continue;
    const auto [begin, end, num_sources, barrier] = graph.controls[control];
    if (barrier != kNoBarrier && end - begin > 1) continue;
    for (int32_t at = problem.control_out_ptr()[op]; at < problem.control_out_ptr()[op + 1]; ++at) {
      AddTransfer(units[op], units[problem.control_out()[at]], costs.signal_ns);
    }
  }

  std::map<std::vector<int32_t>, int32_t> ids;
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
    const auto first = problem.candidates().begin() + problem.candidate_ptr()[unit];
    const auto last = problem.candidates().begin() + problem.candidate_ptr()[unit + 1];
    candidates_id_[unit] =
        ids.emplace(std::vector<int32_t>(first, last), static_cast<int32_t>(ids.size()))
            .first->second;
  }
  std::map<int32_t, int32_t> cluster_of_device;  // of units that have no choice
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
    const int32_t first = problem.candidate_ptr()[unit];
    if (problem.candidate_ptr()[unit + 1] - first > 1) continue;
    const auto [found, is_new] = cluster_of_device.emplace(problem.candidates()[first], unit);
    if (!is_new) Join(Root(found->second), unit);
  }
  PushAll();
}

void Agglomeration::AddTransfer(int32_t u, int32_t v, int64_t ns) {
  if (u == v) return;
  transfer_ns_[u][v] += ns;
  transfer_ns_[v][u] += ns;
}

double Agglomeration::Rating(int32_t u, int32_t v, int64_t transfer_ns) const {
  const auto smaller_ns = static_cast<double>(std::min(work_ns_[u], work_ns_[v]));
  return static_cast<double>(transfer_ns) / (smaller_ns + 1);
}

void Agglomeration::Push(int32_t u, int32_t v, int64_t transfer_ns) {
  if (candidates_id_[u] != candidates_id_[v]) return;
  pairs_.push({Rating(u, v, transfer_ns), std::min(u, v), std::max(u, v)});
}

void Agglomeration::PushAll() {
  for (int32_t u = 0; u < static_cast<int32_t>(parent_.size()); ++u) {
    if (parent_[u] != u) continue;
    for (const auto& [neighbour, ns] : transfer_ns_[u]) {
      if (u < neighbour) Push(u, neighbour, ns);
    }
  }
}

// The one with more neighbours stays, of which some have thousands: only the other one's are looked
// at. That its own pairs are rated less now shows when they come first.
void Agglomeration::Join(int32_t u, int32_t v) {
  if (transfer_ns_[u].size() < transfer_ns_[v].size()) std::swap(u, v);
  parent_[v] = u;
  work_ns_[u] += work_ns_[v];
  position_sum_[u] += position_sum_[v];
  position_count_[u] += position_count_[v];
  --num_clusters_;
  for (const auto& [neighbour, ns] : transfer_ns_[v]) {
    transfer_ns_[neighbour].erase(v);
    if (neighbour == u) continue;
    AddTransfer(u, neighbour, ns);
    Push(u, neighbour, transfer_ns_[u].at(neighbour));
  }
  transfer_ns_[v] = {};
}

// Every pair is among `pairs_` with its rating or a greater one: work only grows, which lowers it,
// and what raises it pushes the pair again.
bool Agglomeration::JoinBestPair() {
  while (!pairs_.empty()) {
    const Pair best = pairs_.top();
    pairs_.pop();
    if (parent_[best.u] != best.u || parent_[best.v] != best.v) continue;
    if (work_ns_[best.u] + work_ns_[best.v] > max_work_ns_) continue;
    const double rating = Rating(best.u, best.v, transfer_ns_[best.u].at(best.v));
    if (rating < best.rating) pairs_.push({rating, best.u, best.v});
    if (rating != best.rating) continue;
    Join(best.u, best.v);
    return true;
  }
  return false;
}

// Exchanges nothing with a cluster that it could be joined to.
bool Agglomeration::IsLoner(int32_t cluster) const {
  return std::none_of(
      transfer_ns_[cluster].begin(), transfer_ns_[cluster].end(),
      [&](const auto& pair) { return candidates_id_[pair.first] == candidates_id_[cluster]; });
}

// Joins clusters that follow each other, two and two: all of them, or loners that stay below the
// limit of work. Returns whether there were any.
bool Agglomeration::JoinInOrder(int32_t size, bool only_loners) {
  const std::vector<int32_t> label = Labels();
  std::vector<int32_t> root(num_clusters_);
  for (size_t unit = 0; unit < label.size(); ++unit) {
    root[label[unit]] = Root(static_cast<int32_t>(unit));
  }
  std::map<int32_t, int32_t> open;  // by candidates: a cluster without a partner yet
  const int32_t before = num_clusters_;
  for (const int32_t cluster : root) {
    if (num_clusters_ <= size) break;
    if (only_loners && (!IsLoner(cluster) || work_ns_[cluster] > max_work_ns_ / 2)) continue;
    const auto [found, is_new] = open.emplace(candidates_id_[cluster], cluster);
    if (is_new) continue;
    Join(found->second, cluster);
    open.erase(found);
  }
  return num_clusters_ < before;
}

void Agglomeration::ShrinkTo(int32_t size) {
  while (num_clusters_ > size) {
    if (JoinBestPair()) continue;
    // Loners first: if they are many, all others would become one cluster to make room for them.
    if (JoinInOrder(size, true)) continue;
    PushAll();  // of pairs that were too large
    if (pairs_.empty()) {
      if (!JoinInOrder(size, false)) return;
    } else {
      max_work_ns_ *= 2;
    }
  }
}

std::vector<int32_t> Agglomeration::Labels() const {
  const auto size = static_cast<int32_t>(parent_.size());
  std::vector<int32_t> roots;
  for (int32_t unit = 0; unit < size; ++unit) {
    if (parent_[unit] == unit) roots.push_back(unit);
  }
  std::stable_sort(roots.begin(), roots.end(), [&](int32_t a, int32_t b) {
    return position_sum_[a] * position_count_[b] < position_sum_[b] * position_count_[a];
  });
  std::vector<int32_t> label(size);
  for (size_t i = 0; i < roots.size(); ++i) label[roots[i]] = static_cast<int32_t>(i);
  for (int32_t unit = 0; unit < size; ++unit) label[unit] = label[Root(unit)];
  return label;
}

}  // namespace

std::vector<std::vector<int32_t>> ClusterUnits(const Problem& problem,
                                               const std::vector<int32_t>& sizes,
                                               int32_t clusters_per_device) {
  CheckCandidates(problem);
  Agglomeration agglomeration(problem, clusters_per_device);
  std::vector<std::vector<int32_t>> labels;
  for (const int32_t size : sizes) {
    agglomeration.ShrinkTo(size);
    labels.push_back(agglomeration.Labels());
  }
  return labels;
}

void CheckClustering(const Problem& problem, const std::vector<int32_t>& label) {
  const auto is_label = [&](int32_t i) { return i >= 0 && i < problem.num_units(); };
  if (static_cast<int32_t>(label.size()) == problem.num_units() &&
      std::all_of(label.begin(), label.end(), is_label)) {
    return;
  }
  throw ProblemError("clusterings: must have a label 0 to units - 1 for each unit");
}

}  // namespace hplacer
