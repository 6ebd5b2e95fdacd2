#include "engine/problem/mean_costs.h"

#include <map>
#include <utility>

namespace hplacer {

MeanCosts::MeanCosts(const Problem& problem) {
  const ProblemSpec& spec = problem.spec();
  op_ns.reserve(problem.num_ops());
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    const int32_t unit = problem.units()[op];
    const int32_t begin = problem.candidate_ptr()[unit], end = problem.candidate_ptr()[unit + 1];
    __int128 sum_ns = 0;
    for (int32_t i = begin; i < end; ++i) sum_ns += problem.CostNs(op, problem.candidates()[i]);
    op_ns.push_back(static_cast<int64_t>(sum_ns / (end - begin)));
  }
  // Most machines have few kinds of links and many of each: (one of them, how many).
  std::map<Problem::Times, std::pair<int32_t, int64_t>> kinds;
  const auto num_links = static_cast<int32_t>(spec.link_src.size());
  for (int32_t link = 0; link < num_links; ++link) {
    auto& [example, count] = kinds[problem.LinkTimes(link)];
    example = link;
    ++count;
  }
  const auto mean_ns = [&](int64_t bytes) -> int64_t {
    __int128 sum_ns = 0;
    for (const auto& [key, kind] : kinds) {
      sum_ns += static_cast<__int128>(problem.TransferNs(kind.first, bytes)) * kind.second;
    }
    return num_links == 0 ? 0 : static_cast<int64_t>(sum_ns / num_links);
  };
  tensor_ns.reserve(problem.num_tensors());
  for (const int64_t bytes : spec.output_bytes) tensor_ns.push_back(mean_ns(bytes));
  signal_ns = mean_ns(0);
}

}  // namespace hplacer
