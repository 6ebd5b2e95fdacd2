#include "engine/search/move_screen.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "engine/schedulers/heft.h"
#include "random_problem.h"
#include "two_ways.h"

namespace hplacer {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

TEST_CASE("lateness of a move is that of the longest way through a moved op") {
  const TwoWays step;
  const int32_t here = step.here, there = step.there;
  const Problem problem = step.b.Build();
  const SearchSpace space(problem);
  const auto scorer = MakePlacementScorer(problem, space.tables());
  SearchState state;
  state.Enter(problem, {here, here, there, here}, scorer.get());
  MoveMaker mover(space);
  MoveScreen screen(space, &mover);
  const auto lateness_ns = [&](const Move& move) {
    return screen.LatenessNs(state, move, kNoLimit);
  };
  // It waits for `long_way` until 150, and `last` then for it until 160.
  CHECK(lateness_ns({{problem.units()[step.short_way], here}}) == 10);
  // It is taken to come after `short_way` there, from 130 to 180, and is back at 181.
  CHECK(lateness_ns({{problem.units()[step.long_way], there}}) == 31);
  // What arrives there at 151 ends at 181: a nanosecond longer than the step.
  CHECK(lateness_ns({{problem.units()[step.last], there}}) == 1);
  CHECK(screen.LatenessNs(state, {{problem.units()[step.short_way], here}}, 7) == 7);
}

// By how many moves of list schedules the step becomes shorter.
int32_t Improving(bool screened) {
  int32_t improving = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Problem problem = RandomProblem(seed, 120);
    const SearchSpace space(problem);
    const auto scorer = MakePlacementScorer(problem, space.tables());
    SearchState state;
    state.Enter(problem, PlaceHeft(problem), scorer.get());
    MoveMaker mover(space);
    MoveScreen screen(space, &mover);
    for (uint64_t i = 0; i < 50; ++i) {
      RandomStream random(seed, 0, i);
      Move move;
      const auto kind = static_cast<MoveKind>(random.Below(kNumMoveKinds));
      if (screened) {
        screen.Make(state, kind, &random, &move);
      } else {
        mover.Make(state, kind, &random, &move);
      }
      if (move.empty()) continue;
      std::vector<int32_t> placement = state.placement;
      PlaceMove(problem, move, &placement);
      Score score;
      improving += scorer->Run(placement.data(), state.score, &score, nullptr);
    }
  }
  return improving;
}

TEST_CASE("of screened moves more are improvements") {
  const int32_t screened = Improving(true), unscreened = Improving(false);
  MESSAGE(screened << " of 2000, unscreened " << unscreened);
  CHECK(screened > 1.5 * unscreened);
}

}  // namespace
}  // namespace hplacer
