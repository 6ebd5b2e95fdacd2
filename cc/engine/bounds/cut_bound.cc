#include "engine/bounds/cut_bound.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "engine/bounds/device_classes.h"
#include "engine/bounds/path_bound.h"

namespace hplacer {
namespace {

int32_t FindRoot(std::vector<int32_t>* parent, int32_t unit) {
  while ((*parent)[unit] != unit) unit = (*parent)[unit] = (*parent)[(*parent)[unit]];
  return unit;
}

}  // namespace

CutPrices::CutPrices(const Problem& problem) : problem_(problem) {
  const DeviceClasses classes(problem);
  const PathBound paths = BoundPaths(problem, classes);
  const int32_t count = classes.num_classes();
  const auto at = [count](int32_t op, int32_t c) { return static_cast<int64_t>(op) * count + c; };
  const auto add = [&](int32_t src, int32_t dst, int64_t bytes) {
    const int32_t src_unit = problem.units()[src], dst_unit = problem.units()[dst];
    if (src_unit == dst_unit) return;
    int64_t price_ns = kNever;
    for (int32_t a = 0; a < count; ++a) {
      if (!classes.Allows(src_unit, a)) continue;
      const int64_t sent_ns = AddNs(paths.head_ns[at(src, a)], classes.CostNs(src, a));
      for (int32_t b = 0; b < count; ++b) {
        if (!classes.Allows(dst_unit, b) || (a == b && classes.Size(a) == 1)) continue;
        const int64_t arrival_ns = AddNs(sent_ns, classes.MinTransferNs(a, b, 1, bytes > 0, bytes));
        const int64_t rest_ns = AddNs(classes.CostNs(dst, b), paths.tail_ns[at(dst, b)]);
        price_ns = std::min(price_ns, AddNs(arrival_ns, rest_ns));
      }
    }
    edges_.push_back({src_unit, dst_unit, price_ns});
  };
  for (int32_t edge = 0; edge < problem.num_edges(); ++edge) {
    const int32_t tensor = problem.edge_tensor()[edge];
    add(problem.tensor_op()[tensor], problem.consumers()[edge],
        problem.spec().output_bytes[tensor]);
  }
  for (int32_t src = 0; src < problem.num_ops(); ++src) {
    for (int32_t c = problem.control_out_ptr()[src]; c < problem.control_out_ptr()[src + 1]; ++c) {
      add(src, problem.control_out()[c], 0);
    }
  }
}

std::vector<int64_t> CutPrices::Above(int64_t bound_ns) const {
  std::vector<int64_t> prices;
  for (const Edge& edge : edges_) {
    if (edge.price_ns > bound_ns && edge.price_ns != kNever) prices.push_back(edge.price_ns);
  }
  std::sort(prices.begin(), prices.end());
  prices.erase(std::unique(prices.begin(), prices.end()), prices.end());
  return prices;
}

Problem CutPrices::Join(int64_t price_ns) const {
  std::vector<int32_t> parent(problem_.num_units());
  std::iota(parent.begin(), parent.end(), 0);
  for (const Edge& edge : edges_) {
    if (edge.price_ns < price_ns) continue;
    parent[FindRoot(&parent, edge.src_unit)] = FindRoot(&parent, edge.dst_unit);
  }
  std::vector<int32_t> units(problem_.num_units(), 0), group(problem_.num_units(), kNoGroup);
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) ++units[FindRoot(&parent, unit)];
  ProblemSpec spec = problem_.spec();
  std::set<std::string> names(spec.colocation_group_names.begin(),
                              spec.colocation_group_names.end());
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    const int32_t root = FindRoot(&parent, problem_.units()[op]);
    if (units[root] == 1) continue;
    if (group[root] == kNoGroup) {
      group[root] = static_cast<int32_t>(spec.colocation_group_names.size());
      std::string name = spec.op_names[op] + " and " + std::to_string(units[root] - 1) + " more";
      while (!names.insert(name).second) name += "'";  // a user's group has that name
      spec.colocation_group_names.push_back(name);
    }
    spec.colocation_group[op] = group[root];
  }
  return Problem::Build(std::move(spec));
}

}  // namespace hplacer
