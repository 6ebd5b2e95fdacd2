#include "engine/search/search_space.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/problem/mean_costs.h"
#include "engine/problem/mix_bits.h"

namespace hplacer {
namespace {

constexpr int32_t kLookDepth = 2;

uint64_t Mix(uint64_t a, uint64_t b) {
  return MixBits(a * 0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019);
}

}  // namespace

Grouping GroupByLabel(const std::vector<int32_t>& labels, int32_t count) {
  Grouping groups;
  groups.ptr.assign(count + 1, 0);
  for (int32_t label : labels) ++groups.ptr[label + 1];
  std::partial_sum(groups.ptr.begin(), groups.ptr.end(), groups.ptr.begin());
  groups.items.resize(labels.size());
  std::vector<int32_t> next = groups.ptr;
  for (size_t i = 0; i < labels.size(); ++i) {
    groups.items[next[labels[i]]++] = static_cast<int32_t>(i);
  }
  return groups;
}

SearchSpace::SearchSpace(const Problem& problem) : problem_(problem), tables_(problem) {
  FindNeighbours();
  SumLoads();
  FindLookAlikes();
}

int64_t SearchSpace::LeastLoadNs(int32_t unit) const {
  int64_t least_ns = std::numeric_limits<int64_t>::max();
  for (int32_t i = problem_.candidate_ptr()[unit]; i < problem_.candidate_ptr()[unit + 1]; ++i) {
    least_ns = std::min(least_ns, LoadNs(unit, problem_.candidates()[i]));
  }
  return least_ns;
}

double SearchSpace::MeanLoadNs() const {
  double sum_ns = 0;
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
    sum_ns += static_cast<double>(LeastLoadNs(unit));
  }
  return sum_ns / problem_.num_units();
}

void SearchSpace::FindNeighbours() {
  const MeanCosts mean(problem_);
  std::vector<std::pair<uint64_t, int64_t>> pairs;
  for (int32_t edge = 0; edge < problem_.num_edges(); ++edge) {
    const int32_t tensor = problem_.edge_tensor()[edge];
    const auto a = static_cast<uint64_t>(problem_.units()[problem_.tensor_op()[tensor]]);
    const auto b = static_cast<uint64_t>(problem_.units()[problem_.consumers()[edge]]);
    if (a == b) continue;
    pairs.emplace_back(a << 32 | b, mean.tensor_ns[tensor]);
    pairs.emplace_back(b << 32 | a, mean.tensor_ns[tensor]);
  }
  std::sort(pairs.begin(), pairs.end());
  neighbour_ptr_.assign(problem_.num_units() + 1, 0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [key, ns] = pairs[i];
    if (i > 0 && pairs[i - 1].first == key) {
      neighbours_.back().transfer_ns += ns;
    } else {
      neighbours_.push_back({static_cast<int32_t>(key & UINT32_MAX), ns});
      ++neighbour_ptr_[(key >> 32) + 1];
    }
  }
  std::partial_sum(neighbour_ptr_.begin(), neighbour_ptr_.end(), neighbour_ptr_.begin());
}

void SearchSpace::SumLoads() {
  const auto kinds = static_cast<size_t>(problem_.num_kinds());
  load_ns_.assign(problem_.num_units() * kinds, 0);
  for (size_t op = 0; op < problem_.units().size(); ++op) {
    for (size_t kind = 0; kind < kinds; ++kind) {
      load_ns_[problem_.units()[op] * kinds + kind] +=
          std::max<int64_t>(0, problem_.spec().cost_ns[op * kinds + kind]);
    }
  }
}

void SearchSpace::FindLookAlikes() {
  const ProblemSpec& spec = problem_.spec();
  const int32_t n = problem_.num_ops(), kinds = problem_.num_kinds();
  std::vector<uint64_t> hash(n), next(n);
  for (int32_t op = 0; op < n; ++op) {
    uint64_t h = std::hash<std::string>()(spec.op_types[op]);
    for (int32_t kind = 0; kind < kinds; ++kind) {
      h = Mix(h, static_cast<uint64_t>(spec.cost_ns[static_cast<size_t>(op) * kinds + kind]));
    }
    for (int32_t t = problem_.FirstTensor(op); t < problem_.FirstTensor(op + 1); ++t) {
      h = Mix(h, static_cast<uint64_t>(spec.output_bytes[t]));
    }
    hash[op] = h;
  }
  // Sums, so that the order of neighbours means nothing.
  for (int32_t depth = 0; depth < kLookDepth; ++depth) {
    std::fill(next.begin(), next.end(), 0);
    for (int32_t edge = 0; edge < problem_.num_edges(); ++edge) {
      const int32_t src = problem_.tensor_op()[problem_.edge_tensor()[edge]];
      const int32_t dst = problem_.consumers()[edge];
      next[dst] += Mix(hash[src], 1);
      next[src] += Mix(hash[dst], 2);
    }
    for (int32_t op = 0; op < n; ++op) hash[op] = Mix(hash[op], next[op]);
  }
  std::vector<uint64_t> of_unit(problem_.num_units(), 0);
  for (int32_t op = 0; op < n; ++op) of_unit[problem_.units()[op]] += hash[op];
  std::unordered_map<uint64_t, int32_t> index;
  for (uint64_t h : of_unit) {
    look_.push_back(index.try_emplace(h, static_cast<int32_t>(index.size())).first->second);
  }
  look_alikes_ = GroupByLabel(look_, static_cast<int32_t>(index.size()));
}

}  // namespace hplacer
