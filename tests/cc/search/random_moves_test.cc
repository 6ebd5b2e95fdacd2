#include "engine/search/random_moves.h"

#include <doctest/doctest.h>

#include <vector>

#include "random_problem.h"

namespace hplacer {
namespace {

TEST_CASE("random moves change something, and keep units whole and on candidates") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Problem problem = RandomProblem(seed, 60, /*restricted=*/true);
    const std::vector<int32_t> placement = RandomPlacement(problem, seed);
    // The units that may be anywhere, and each other one.
    std::vector<int32_t> label(problem.num_units());
    int32_t free = -1;
    for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
      const bool is_free = Candidates(problem, unit).size() == kDevices;
      if (is_free && free < 0) free = unit;
      label[unit] = is_free ? free : unit;
    }
    RandomMoves moves(problem, {label});
    const auto drawn = moves.Draw(placement, 40, seed);
    CHECK(!drawn.empty());
    CHECK(drawn.size() <= 40);
    for (const std::vector<int32_t>& moved : drawn) {
      CHECK(moved != placement);
      for (int32_t op = 0; op < problem.num_ops(); ++op) {
        const int32_t unit = problem.units()[op];
        CHECK(problem.IsCandidate(unit, moved[op]));
        CHECK(moved[op] == moved[problem.unit_ops()[problem.unit_op_ptr()[unit]]]);
      }
    }
    CHECK(moves.Draw(placement, 40, seed) == drawn);
    CHECK(RandomMoves(problem, {label}).Draw(placement, 40, seed) == drawn);
    CHECK(moves.Draw(placement, 40, seed + 1) != drawn);
  }
}

TEST_CASE("random moves of a placement that does not fit or cannot run") {
  ProblemBuilder b;
  b.Device(1, 10);
  b.Device(1, 100);  // without a link
  const int32_t src = b.Op(5, {50}), reader = b.Op(5);
  b.Edge(src, 0, reader);
  const Problem problem = b.Build();
  RandomMoves moves(problem, {});
  CHECK(!moves.Draw({0, 0}, 20, 1).empty());
  CHECK(!moves.Draw({0, 1}, 20, 1).empty());
}

}  // namespace
}  // namespace hplacer
