#include "engine/search/joined_units.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hplacer {

Problem JoinUnits(const Problem& problem, const std::vector<int32_t>& unit_cluster) {
  ProblemSpec spec = problem.spec();
  spec.colocation_group_names.clear();
  const int32_t last = *std::max_element(unit_cluster.begin(), unit_cluster.end());
  for (int32_t i = 0; i <= last; ++i) spec.colocation_group_names.push_back(std::to_string(i));
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    spec.colocation_group[op] = unit_cluster[problem.units()[op]];
  }
  return Problem::Build(std::move(spec));
}

}  // namespace hplacer
