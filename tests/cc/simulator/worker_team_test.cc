#include "engine/simulator/worker_team.h"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace hplacer {
namespace {

TEST_CASE("every item of many batches is run once, by a worker of the team") {
  WorkerTeam team(4);
  for (int32_t count : {0, 1, 3, 1000}) {
    std::vector<std::atomic<int>> runs(count);
    std::atomic<bool> is_worker = true;
    team.ForEach(count, [&](int worker, int32_t item) {
      ++runs[item];
      if (worker < 0 || worker >= team.size()) is_worker = false;
    });
    for (const std::atomic<int>& times : runs) CHECK(times == 1);
    CHECK(is_worker);
  }
}

TEST_CASE("an exception of any worker reaches the caller, and the team works on") {
  for (int workers : {1, 2, 4}) {
    WorkerTeam team(workers);
    for (int batch = 0; batch < 50; ++batch) {
      std::atomic<int> runs = 0;
      CHECK_THROWS_WITH_AS(team.ForEach(1000,
                                        [&](int, int32_t item) {
                                          ++runs;
                                          if (item >= 20) throw std::runtime_error("item 20");
                                        }),
                           "item 20", std::runtime_error);
      CHECK(runs > 20);
      CHECK(runs <= 20 + workers);  // none takes another item after the exception
      runs = 0;
      team.ForEach(10, [&](int, int32_t) { ++runs; });
      CHECK(runs == 10);
    }
  }
}

TEST_CASE("an exception of a helper alone reaches the caller") {
  WorkerTeam team(2);
  if (team.size() < 2) return;  // the system grants no threads
  std::atomic<bool> helper_threw = false;
  const auto run = [&](int worker, int32_t) {
    if (worker == 1) {
      helper_threw = true;
      throw std::runtime_error("helper");
    }
    while (!helper_threw) {
    }
  };
  CHECK_THROWS_WITH_AS(team.ForEach(2, run), "helper", std::runtime_error);
}

}  // namespace
}  // namespace hplacer
