#include "engine/search/enumeration.h"

#include <algorithm>
#include <memory>

namespace hplacer {
namespace {

// Between two looks at the budget: small enough for one of them, large enough for all threads.
constexpr int64_t kOpsPerRound = 2'000'000;
constexpr int32_t kMostPerRound = 4096, kChunksPerRound = 16;

int64_t NumCandidates(const Problem& problem, int32_t unit) {
  return problem.candidate_ptr()[unit + 1] - problem.candidate_ptr()[unit];
}

// Placement number `index`, where the last unit changes fastest.
void PlaceByIndex(const Problem& problem, int64_t index, std::vector<int32_t>* placement) {
  for (int32_t unit = problem.num_units(); unit-- > 0;) {
    const int64_t count = NumCandidates(problem, unit);
    const int32_t device =
        problem.candidates()[problem.candidate_ptr()[unit] + static_cast<int32_t>(index % count)];
    index /= count;
    for (int32_t i = problem.unit_op_ptr()[unit]; i < problem.unit_op_ptr()[unit + 1]; ++i) {
      (*placement)[problem.unit_ops()[i]] = device;
    }
  }
}

}  // namespace

int64_t CountPlacements(const Problem& problem, int64_t limit) {
  int64_t count = 1;
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
    count *= NumCandidates(problem, unit);
    if (count > limit) return limit + 1;
  }
  return count;
}

bool EnumeratePlacements(const SearchSpace& space, WorkerTeam* team,
                         const std::function<int32_t(int32_t wanted)>& take,
                         std::vector<int32_t>* placement, Score* score) {
  struct Worker {
    std::unique_ptr<PlacementScorer> scorer;
    std::vector<int32_t> placement;
  };
  struct Best {
    Score score;
    int64_t index;
  };
  const Problem& problem = space.problem();
  const int64_t total = CountPlacements(problem, std::numeric_limits<int32_t>::max());
  const int64_t chunk_size =
      std::clamp<int64_t>(kOpsPerRound / std::max(1, problem.num_ops()) / kChunksPerRound, 1,
                          kMostPerRound / kChunksPerRound);
  std::vector<Worker> workers;
  for (int i = 0; i < team->size(); ++i) {
    workers.push_back(
        {MakePlacementScorer(problem, space.tables()), std::vector<int32_t>(problem.num_ops())});
  }
  for (int64_t begin = 0; begin < total;) {
    const int64_t wanted = std::min(chunk_size * kChunksPerRound, total - begin);
    const int64_t end = begin + take(static_cast<int32_t>(wanted));
    if (end == begin) return false;
    std::vector<Best> bests((end - begin + chunk_size - 1) / chunk_size, {*score, -1});
    team->ForEach(static_cast<int32_t>(bests.size()), [&](int w, int32_t chunk) {
      Worker& worker = workers[w];
      const int64_t first = begin + chunk * chunk_size;
      for (int64_t index = first; index < std::min(first + chunk_size, end); ++index) {
        PlaceByIndex(problem, index, &worker.placement);
        Score found;
        if (worker.scorer->Run(worker.placement.data(), bests[chunk].score, &found, nullptr)) {
          bests[chunk] = {found, index};
        }
      }
    });
    for (const Best& best : bests) {
      if (!(best.score < *score)) continue;
      *score = best.score;
      PlaceByIndex(problem, best.index, placement);
    }
    begin = end;
  }
  return true;
}

}  // namespace hplacer
