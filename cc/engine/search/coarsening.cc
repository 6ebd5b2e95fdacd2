#include "engine/search/coarsening.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "engine/problem/mean_costs.h"
#include "engine/search/random_stream.h"

namespace hplacer {
namespace {

constexpr int32_t kMaxDegreeLookedAt = 64;
constexpr int32_t kNone = -1;

}  // namespace

Coarsening::Coarsening(const Problem& problem, uint64_t seed) : problem_(problem), seed_(seed) {
  const MeanCosts mean(problem);
  const int32_t n = problem.num_ops(), units = problem.num_units();
  cluster_.resize(n);
  std::iota(cluster_.begin(), cluster_.end(), 0);
  unit_ = problem.units();
  parent_.resize(units);
  std::iota(parent_.begin(), parent_.end(), 0);
  unit_work_ns_.assign(units, 0);
  std::map<std::vector<int32_t>, int32_t> kinds;
  for (int32_t unit = 0; unit < units; ++unit) {
    const auto begin = problem.candidates().begin();
    std::vector<int32_t> candidates(begin + problem.candidate_ptr()[unit],
                                    begin + problem.candidate_ptr()[unit + 1]);
    const auto next = static_cast<int32_t>(kinds.size());
    kind_of_unit_.push_back(kinds.try_emplace(std::move(candidates), next).first->second);
  }
  for (int32_t op = 0; op < n; ++op) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int32_t i = problem.candidate_ptr()[unit_[op]]; i < problem.candidate_ptr()[unit_[op] + 1];
         ++i) {
      least = std::min(least, problem.CostNs(op, problem.candidates()[i]));
    }
    work_ns_.push_back(least);
    unit_work_ns_[unit_[op]] += least;
  }
  std::vector<std::pair<uint64_t, int64_t>> pairs;
  for (int32_t edge = 0; edge < problem.num_edges(); ++edge) {
    const int32_t tensor = problem.edge_tensor()[edge];
    const auto src = static_cast<uint64_t>(problem.tensor_op()[tensor]);
    pairs.emplace_back(src << 32 | static_cast<uint64_t>(problem.consumers()[edge]),
                       mean.tensor_ns[tensor]);
  }
  for (int32_t op = 0; op < n; ++op) {
    for (int32_t c = problem.control_out_ptr()[op]; c < problem.control_out_ptr()[op + 1]; ++c) {
      pairs.emplace_back(
          static_cast<uint64_t>(op) << 32 | static_cast<uint64_t>(problem.control_out()[c]), 0);
    }
  }
  SetArcs(&pairs);
}

bool Coarsening::Shrink(int32_t target, int64_t max_work_ns) {
  const int32_t before = num_clusters();
  for (int32_t failures = 0; num_clusters() > target && failures < 2;) {
    const int32_t size = num_clusters();
    MatchOnce(latest_, max_work_ns);
    latest_ = !latest_;
    failures = num_clusters() > size - size / 50 - 1 ? failures + 1 : 0;
  }
  return num_clusters() < before;
}

// Adds up what is between the same pair, (source << 32 | destination, transfer_ns).
void Coarsening::SetArcs(std::vector<std::pair<uint64_t, int64_t>>* pairs) {
  std::sort(pairs->begin(), pairs->end());
  size_t size = 0;
  for (const auto& pair : *pairs) {
    if (size > 0 && (*pairs)[size - 1].first == pair.first) {
      (*pairs)[size - 1].second += pair.second;
    } else {
      (*pairs)[size++] = pair;
    }
  }
  pairs->resize(size);
  out_.ptr.assign(num_clusters() + 1, 0);
  in_.ptr.assign(num_clusters() + 1, 0);
  for (const auto& [key, ns] : *pairs) {
    ++out_.ptr[(key >> 32) + 1];
    ++in_.ptr[(key & UINT32_MAX) + 1];
  }
  std::partial_sum(out_.ptr.begin(), out_.ptr.end(), out_.ptr.begin());
  std::partial_sum(in_.ptr.begin(), in_.ptr.end(), in_.ptr.begin());
  out_.arcs.resize(size);
  in_.arcs.resize(size);
  std::vector<int32_t> next = in_.ptr;
  for (size_t i = 0; i < size; ++i) {
    const auto [key, ns] = (*pairs)[i];
    const auto src = static_cast<int32_t>(key >> 32), dst = static_cast<int32_t>(key & UINT32_MAX);
    out_.arcs[i] = {dst, ns};
    in_.arcs[next[dst]++] = {src, ns};
  }
}

// Rising along every arc: how many arcs lead to a cluster at most, or, if `latest`, minus how many
// lead away from it at most.
std::vector<int32_t> Coarsening::Labels(bool latest) const {
  const Adjacency& from = latest ? out_ : in_;
  const Adjacency& to = latest ? in_ : out_;
  const int32_t n = num_clusters();
  std::vector<int32_t> label(n, 0), pending(n), ready;
  for (int32_t v = 0; v < n; ++v) {
    pending[v] = from.ptr[v + 1] - from.ptr[v];
    if (pending[v] == 0) ready.push_back(v);
  }
  while (!ready.empty()) {
    const int32_t v = ready.back();
    ready.pop_back();
    for (int32_t i = to.ptr[v]; i < to.ptr[v + 1]; ++i) {
      const int32_t w = to.arcs[i].to;
      label[w] = latest ? std::min(label[w], label[v] - 1) : std::max(label[w], label[v] + 1);
      if (--pending[w] == 0) ready.push_back(w);
    }
  }
  return label;
}

bool Coarsening::MayMerge(int32_t u, int32_t v, int64_t max_work_ns) const {
  if (work_ns_[u] + work_ns_[v] > max_work_ns) return false;
  const int32_t a = FindUnit(unit_[u]), b = FindUnit(unit_[v]);
  if (a == b) return true;
  return kind_of_unit_[a] == kind_of_unit_[b] && unit_work_ns_[a] + unit_work_ns_[b] <= max_work_ns;
}

int32_t Coarsening::BestPartner(int32_t u, const std::vector<int32_t>& label,
                                const std::vector<int32_t>& partner, int64_t max_work_ns) const {
  int32_t best = kNone;
  double best_rating = -1;
  const auto consider = [&](int32_t v, int64_t transfer_ns) {
    if (v == u || partner[v] != kNone || !MayMerge(u, v, max_work_ns)) return;
    const double rating =
        static_cast<double>(transfer_ns + 1) / static_cast<double>(work_ns_[u] + work_ns_[v] + 1);
    if (rating > best_rating) {
      best_rating = rating;
      best = v;
    }
  };
  for (int32_t i = out_.ptr[u]; i < out_.ptr[u + 1]; ++i) {
    if (label[out_.arcs[i].to] == label[u] + 1) consider(out_.arcs[i].to, out_.arcs[i].transfer_ns);
  }
  for (int32_t i = in_.ptr[u]; i < in_.ptr[u + 1]; ++i) {
    if (label[in_.arcs[i].to] == label[u] - 1) consider(in_.arcs[i].to, in_.arcs[i].transfer_ns);
  }
  if (best != kNone) return best;
  // Siblings: other readers of the same tensors, other inputs of the same ops.
  const auto consider_siblings = [&](const Adjacency& up, const Adjacency& down) {
    const int32_t end = std::min(up.ptr[u + 1], up.ptr[u] + kMaxDegreeLookedAt);
    for (int32_t i = up.ptr[u]; i < end; ++i) {
      const int32_t w = up.arcs[i].to;
      if (down.ptr[w + 1] - down.ptr[w] > kMaxDegreeLookedAt) continue;
      for (int32_t j = down.ptr[w]; j < down.ptr[w + 1]; ++j) {
        const int32_t v = down.arcs[j].to;
        if (label[v] == label[u]) {
          consider(v, std::min(up.arcs[i].transfer_ns, down.arcs[j].transfer_ns));
        }
      }
    }
  };
  consider_siblings(in_, out_);
  consider_siblings(out_, in_);
  return best;
}

bool Coarsening::MatchOnce(bool latest, int64_t max_work_ns) {
  const int32_t n = num_clusters();
  const std::vector<int32_t> label = Labels(latest);
  std::vector<int32_t> order(n), partner(n, kNone);
  std::iota(order.begin(), order.end(), 0);
  RandomStream(seed_++).Shuffle(&order);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return work_ns_[a] < work_ns_[b]; });
  bool matched = false;
  for (int32_t u : order) {
    if (partner[u] != kNone) continue;
    const int32_t v = BestPartner(u, label, partner, max_work_ns);
    if (v == kNone) continue;
    partner[u] = v;
    partner[v] = u;
    matched = true;
  }
  if (matched) Merge(partner);
  return matched;
}

// Takes pairs apart that lie on cycles or between two of them. merged[u] is the cluster of u.
void Coarsening::SplitCycles(const std::vector<int32_t>& partner,
                             std::vector<int32_t>* merged) const {
  const int32_t n = num_clusters();
  std::vector<uint8_t> removed(n, 0);  // of merged clusters, by representative
  const auto trim = [&](const Adjacency& from, const Adjacency& to) {
    std::vector<int32_t> pending(n, 0), ready;
    const auto representative = [&](int32_t u) { return (*merged)[u]; };
    for (int32_t u = 0; u < n; ++u) {
      if (removed[representative(u)]) continue;
      for (int32_t i = from.ptr[u]; i < from.ptr[u + 1]; ++i) {
        const int32_t w = representative(from.arcs[i].to);
        if (w != representative(u) && !removed[w]) ++pending[representative(u)];
      }
    }
    for (int32_t u = 0; u < n; ++u) {
      if (representative(u) == u && !removed[u] && pending[u] == 0) ready.push_back(u);
    }
    const auto release = [&](int32_t u, int32_t self) {
      for (int32_t i = to.ptr[u]; i < to.ptr[u + 1]; ++i) {
        const int32_t w = representative(to.arcs[i].to);
        if (w != self && !removed[w] && --pending[w] == 0) ready.push_back(w);
      }
    };
    while (!ready.empty()) {
      const int32_t u = ready.back();
      ready.pop_back();
      removed[u] = 1;
      release(u, u);
      if (partner[u] != kNone && (*merged)[partner[u]] == u) release(partner[u], u);
    }
  };
  trim(in_, out_);
  trim(out_, in_);
  std::vector<int32_t> result = *merged;
  for (int32_t u = 0; u < n; ++u) {
    if (!removed[(*merged)[u]]) result[u] = u;
  }
  *merged = std::move(result);
}

void Coarsening::Merge(const std::vector<int32_t>& partner) {
  const int32_t n = num_clusters();
  std::vector<int32_t> merged(n);
  for (int32_t u = 0; u < n; ++u) merged[u] = partner[u] == kNone ? u : std::min(u, partner[u]);
  SplitCycles(partner, &merged);
  std::vector<int32_t> index(n, kNone);
  std::vector<int64_t> work_ns;
  std::vector<int32_t> unit;
  for (int32_t u = 0; u < n; ++u) {
    const int32_t first = merged[u];
    if (first == u) {
      index[u] = static_cast<int32_t>(work_ns.size());
      work_ns.push_back(work_ns_[u]);
      unit.push_back(unit_[u]);
      continue;
    }
    index[u] = index[first];
    work_ns[index[u]] += work_ns_[u];
    const int32_t a = FindUnit(unit_[first]), b = FindUnit(unit_[u]);
    if (a == b) continue;
    parent_[b] = a;
    unit_work_ns_[a] += unit_work_ns_[b];
  }
  std::vector<std::pair<uint64_t, int64_t>> pairs;
  for (int32_t u = 0; u < n; ++u) {
    for (int32_t i = out_.ptr[u]; i < out_.ptr[u + 1]; ++i) {
      const int32_t a = index[u], b = index[out_.arcs[i].to];
      if (a == b) continue;
      pairs.emplace_back(static_cast<uint64_t>(a) << 32 | static_cast<uint64_t>(b),
                         out_.arcs[i].transfer_ns);
    }
  }
  work_ns_ = std::move(work_ns);
  unit_ = std::move(unit);
  for (int32_t& c : cluster_) c = index[c];
  SetArcs(&pairs);
}

int32_t Coarsening::FindUnit(int32_t unit) const {
  while (parent_[unit] != unit) unit = parent_[unit] = parent_[parent_[unit]];
  return unit;
}

Problem Coarsening::Contract() const {
  const ProblemSpec& fine = problem_.spec();
  const int32_t n = problem_.num_ops(), count = num_clusters(), kinds = problem_.num_kinds();
  ProblemSpec spec;
  spec.name = fine.name;
  spec.device_kinds = fine.device_kinds;
  spec.device_names = fine.device_names;
  spec.device_kind = fine.device_kind;
  spec.device_memory_bytes = fine.device_memory_bytes;
  spec.device_slots = fine.device_slots;
  spec.device_cores = fine.device_cores;
  spec.device_start_ns = fine.device_start_ns;
  spec.device_turn_ns = fine.device_turn_ns;
  spec.device_cold_ns = fine.device_cold_ns;
  spec.device_launch_ns = fine.device_launch_ns;
  spec.inter_op_threads = fine.inter_op_threads;
  spec.link_src = fine.link_src;
  spec.link_dst = fine.link_dst;
  spec.link_channel = fine.link_channel;
  spec.link_latency_ns = fine.link_latency_ns;
  spec.link_bytes_per_s = fine.link_bytes_per_s;
  spec.link_send_ns = fine.link_send_ns;
  spec.link_send_bytes_per_s = fine.link_send_bytes_per_s;
  spec.link_receive_ns = fine.link_receive_ns;
  spec.link_receive_bytes_per_s = fine.link_receive_bytes_per_s;

  // Tensors that leave their cluster, numbered cluster by cluster.
  std::vector<std::vector<int32_t>> exported(count);
  std::vector<int32_t> output(problem_.num_tensors(), kNone);
  spec.cost_ns.assign(static_cast<size_t>(count) * kinds, 0);
  std::vector<uint8_t> has_devices(kinds, 0);  // sums of the other costs may be too large
  for (const int32_t kind : fine.device_kind) has_devices[kind] = 1;
  spec.persistent_bytes.assign(count, 0);
  spec.temp_bytes.assign(count, 0);
  for (int32_t op = 0; op < n; ++op) {
    const int32_t c = cluster_[op];
    int64_t kept_bytes = fine.temp_bytes[op];
    for (int32_t t = problem_.FirstTensor(op); t < problem_.FirstTensor(op + 1); ++t) {
      const auto leaves = [&](int32_t consumer) { return cluster_[consumer] != c; };
      const auto begin = problem_.consumers().begin();
      if (std::any_of(begin + problem_.consumer_ptr()[t], begin + problem_.consumer_ptr()[t + 1],
                      leaves)) {
        output[t] = static_cast<int32_t>(exported[c].size());
        exported[c].push_back(t);
      } else if (problem_.alias_edge()[t] == kNoAlias) {
        kept_bytes += fine.output_bytes[t];
      }
    }
    spec.temp_bytes[c] = std::max(spec.temp_bytes[c], kept_bytes);
    spec.persistent_bytes[c] += fine.persistent_bytes[op];
    for (int32_t kind = 0; kind < kinds; ++kind) {
      if (!has_devices[kind]) continue;
      const int64_t cost_ns = fine.cost_ns[static_cast<size_t>(op) * kinds + kind];
      int64_t& sum_ns = spec.cost_ns[static_cast<size_t>(c) * kinds + kind];
      sum_ns = cost_ns == kNoKernel || sum_ns == kNoKernel ? kNoKernel : sum_ns + cost_ns;
    }
  }

  // An alias of what its cluster made or of persistent memory holds nothing of its own.
  const auto alias_of = [&](int32_t tensor) -> std::pair<int32_t, int32_t> {
    const int32_t c = cluster_[problem_.tensor_op()[tensor]];
    bool is_alias = false;
    for (int32_t t = tensor;;) {
      const int32_t edge = problem_.alias_edge()[t];
      if (edge == kNoAlias) break;
      is_alias = true;
      if (edge == kPersistentAlias) break;
      t = problem_.edge_tensor()[edge];
      const int32_t src = cluster_[problem_.tensor_op()[t]];
      if (src != c) return {src, output[t]};
    }
    return {is_alias ? kPersistentAlias : kNoAlias, 0};
  };
  spec.output_ptr.push_back(0);
  spec.allowed_ptr.push_back(0);
  for (int32_t c = 0; c < count; ++c) {
    spec.op_names.push_back(std::to_string(c));
    for (int32_t t : exported[c]) {
      const auto [alias_src, alias_output] = alias_of(t);
      spec.output_bytes.push_back(fine.output_bytes[t]);
      spec.output_alias_src.push_back(alias_src);
      spec.output_alias_output.push_back(alias_output);
      for (int32_t e = problem_.consumer_ptr()[t]; e < problem_.consumer_ptr()[t + 1]; ++e) {
        const int32_t reader = cluster_[problem_.consumers()[e]];
        if (reader != c) spec.edges.insert(spec.edges.end(), {c, output[t], reader});
      }
    }
    spec.output_ptr.push_back(static_cast<int64_t>(spec.output_bytes.size()));
    const int32_t unit = unit_[c];
    const auto begin = problem_.candidates().begin();
    spec.allowed_device.insert(spec.allowed_device.end(), begin + problem_.candidate_ptr()[unit],
                               begin + problem_.candidate_ptr()[unit + 1]);
    spec.allowed_ptr.push_back(static_cast<int64_t>(spec.allowed_device.size()));
  }
  spec.op_types.assign(count, "");
  spec.allowed_given.assign(count, 1);
  for (int32_t op = 0; op < n; ++op) {
    for (int32_t i = problem_.control_out_ptr()[op]; i < problem_.control_out_ptr()[op + 1]; ++i) {
      const int32_t to = cluster_[problem_.control_out()[i]];
      if (to != cluster_[op])
        spec.control_edges.insert(spec.control_edges.end(), {cluster_[op], to});
    }
  }

  std::vector<int32_t> group(problem_.num_units(), kNone);
  for (int32_t op = 0; op < n; ++op) {
    int32_t& of_root = group[FindUnit(problem_.units()[op])];
    if (of_root != kNone) continue;
    of_root = static_cast<int32_t>(spec.colocation_group_names.size());
    spec.colocation_group_names.push_back(std::to_string(of_root));
  }
  for (int32_t c = 0; c < count; ++c) spec.colocation_group.push_back(group[FindUnit(unit_[c])]);
  return Problem::Build(std::move(spec));
}

}  // namespace hplacer
