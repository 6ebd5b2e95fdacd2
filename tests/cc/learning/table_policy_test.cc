#include "engine/learning/table_policy.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "problem_builder.h"

namespace hplacer {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int32_t kCount = 64;

Problem IndependentOps(int32_t count, int32_t devices) {
  ProblemBuilder b;
  for (int32_t device = 0; device < devices; ++device) b.Device();
  for (int32_t op = 0; op < count; ++op) b.Op(10);
  return b.Build();
}

// Items 0 and 1 are in groups 0 and 1, whose devices they show; item 2 draws one of these.
TablePolicy ThreeItems(const Problem& problem) {
  return TablePolicy(problem, {0, 1, 2}, {0, -1, 1, -1, 0, 1}, {0.5, 0, 0, 0.25},
                     {0, 0, 0, 0, 1, 0});
}

std::vector<int32_t> Draw(TablePolicy* policy, uint64_t seed, int threads, int32_t count = kCount) {
  std::vector<int32_t> placements(static_cast<size_t>(count) * policy->problem().num_ops());
  policy->Draw(seed, count, threads, placements.data());
  return placements;
}

std::vector<double> Advantages() {
  std::vector<double> advantages(kCount);
  for (int32_t row = 0; row < kCount; ++row) advantages[row] = std::sin(row * row);
  return advantages;
}

// The gradient of the first update: Adam's mean is a tenth of it.
std::vector<double> FirstGradient(const LogitTable& table) {
  std::vector<double> gradient = table.mean;
  for (double& value : gradient) value *= 10;
  return gradient;
}

TEST_CASE("choices are drawn as likely as their logits say, and never those of -infinity") {
  const Problem problem = IndependentOps(1, 3);
  TablePolicy policy(problem, {0}, {0}, {std::log(3.0), 0, kNever}, {0});
  const std::vector<int32_t> drawn = Draw(&policy, 1, 1, 10'000);
  std::vector<int32_t> times(3);
  for (const int32_t device : drawn) ++times[device];
  CHECK(times[0] / 10'000.0 == doctest::Approx(0.75).epsilon(0.03));
  CHECK(times[2] == 0);
  const double entropy = -0.75 * std::log(0.75) - 0.25 * std::log(0.25);
  CHECK(policy.PlacerEntropy() == doctest::Approx(entropy));
}

TEST_CASE("the gradient of the Placer is REINFORCE's, with the entropy's") {
  const Problem problem = IndependentOps(3, 2);
  TablePolicy policy = ThreeItems(problem);
  const std::vector<int32_t> drawn = Draw(&policy, 7, 1);
  const std::vector<double> advantages = Advantages();
  policy.Learn(advantages, {0.1, 0, 0.5, true}, 1);
  const double p = 1 / (1 + std::exp(-0.5)), q = 1 - p;  // of devices 0 and 1 for group 0
  double expected = 0;
  for (int32_t row = 0; row < kCount; ++row) {
    expected += advantages[row] * ((drawn[row * 3] == 0) - p) / kCount;
  }
  const double entropy = -p * std::log(p) - q * std::log(q);
  expected -= 0.5 * p * (std::log(p) + entropy);
  CHECK(FirstGradient(policy.placer())[0] == doctest::Approx(expected));
  CHECK(FirstGradient(policy.placer())[1] == doctest::Approx(-expected));
  // Adam's first step is as long as the rate; then the largest logit is 0.
  const double moved = expected > 0 ? 0.2 : -0.2;
  CHECK(policy.placer().logits[0] - policy.placer().logits[1] == doctest::Approx(0.5 + moved));
  CHECK(policy.grouper().logits[4] == 1);
}

TEST_CASE("the gradient of the Grouper is that of the device's probability") {
  const Problem problem = IndependentOps(3, 2);
  const std::vector<double> advantages = Advantages();
  const double q = 1 / (1 + std::exp(-1.0));  // that item 2 draws group 0
  const double mean = std::accumulate(advantages.begin(), advantages.end(), 0.0) / kCount;
  for (const bool rao_blackwell : {true, false}) {
    TablePolicy policy = ThreeItems(problem);
    const std::vector<int32_t> drawn = Draw(&policy, 7, 1);
    policy.Learn(advantages, {0, 0.1, 0, rao_blackwell}, 1);
    double of_devices = 0;  // the first group alone had the item's device; or both had it
    for (int32_t row = 0; row < kCount; ++row) {
      const int32_t* device = &drawn[row * 3];
      const double chance = device[0] == device[1] ? q : device[0] == device[2] ? 1 : 0;
      of_devices += advantages[row] * chance / kCount;
    }
    const double found = FirstGradient(policy.grouper())[4];
    CHECK(FirstGradient(policy.grouper())[5] == doctest::Approx(-found));
    CHECK((found == doctest::Approx(of_devices - q * mean)) == rao_blackwell);
    CHECK(policy.grouper().logits[0] == 0);  // it has no other group
    CHECK(policy.placer().logits[0] == 0.5);
  }
}

TEST_CASE("what is better becomes likely, and what is unlikely is still tried") {
  const Problem problem = IndependentOps(3, 2);
  TablePolicy policy = ThreeItems(problem);
  for (int32_t step = 0; step < 200; ++step) {
    const std::vector<int32_t> drawn = Draw(&policy, step, 1);
    std::vector<double> advantages;
    for (int32_t row = 0; row < kCount; ++row) {
      const int32_t* device = &drawn[row * 3];
      advantages.push_back((device[0] == 1) - (device[1] == 1) + (device[2] == 1) - 0.5);
    }
    policy.Learn(advantages, {0.2, 0.2, 0, true}, 1);
  }
  const std::vector<double>& logits = policy.placer().logits;
  CHECK(logits[1] - logits[0] > 5);
  CHECK(logits[2] - logits[3] > 5);
  for (const double logit : logits) CHECK(logit >= -9);
  CHECK(policy.grouper().logits[4] > policy.grouper().logits[5] + 3);
}

TEST_CASE("any number of threads draws and learns the same") {
  const Problem problem = IndependentOps(30'000, 3);
  std::vector<int32_t> item(30'000), candidates;
  std::iota(item.begin(), item.end(), 0);
  for (int32_t i = 0; i < 30'000; ++i) {
    for (const int32_t group : {i % 50, (i + 1) % 50, (i + 7) % 50}) candidates.push_back(group);
  }
  std::vector<int32_t> drawn;
  std::vector<double> logits;
  for (const int threads : {1, 2, 7}) {
    TablePolicy policy(problem, item, candidates, std::vector<double>(150),
                       std::vector<double>(90'000));
    for (uint64_t step = 0; step < 3; ++step) {
      const std::vector<int32_t> now = Draw(&policy, step, threads);
      policy.Learn(Advantages(), {0.2, 0.2, 0.01, true}, threads);
      if (threads == 1 && step == 2) drawn = now;
      if (step == 2) CHECK(now == drawn);
    }
    if (threads == 1) logits = policy.grouper().logits;
    CHECK(policy.grouper().logits == logits);
  }
}

TEST_CASE("a policy that is restored goes on as before, and one of another size is refused") {
  const Problem problem = IndependentOps(3, 2);
  TablePolicy policy = ThreeItems(problem), other = ThreeItems(problem);
  Draw(&policy, 1, 1);
  policy.Learn(Advantages(), {0.2, 0.2, 0, true}, 1);
  other.Restore(policy.placer(), policy.grouper(), policy.updates());
  for (TablePolicy* each : {&policy, &other}) {
    Draw(each, 2, 1);
    each->Learn(Advantages(), {0.2, 0.2, 0, true}, 1);
  }
  CHECK(policy.placer().logits == other.placer().logits);
  CHECK(policy.grouper().square == other.grouper().square);
  CHECK_THROWS_AS(other.Restore(policy.grouper(), policy.placer(), 1), ProblemError);
  CHECK_THROWS_AS(other.Restore(policy.placer(), policy.grouper(), -1), ProblemError);
  LogitTable damaged = policy.placer();
  damaged.logits[0] = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(other.Restore(damaged, policy.grouper(), 1), ProblemError);
}

TEST_CASE("tables that do not fit the problem are refused") {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Op(10);
  b.Allow({1});
  const Problem problem = b.Build();
  CHECK_NOTHROW(TablePolicy(problem, {0}, {0}, {kNever, 0}, {0}));
  CHECK_THROWS_AS(TablePolicy(problem, {0}, {0}, {0, 0}, {0}),
                  ProblemError);  // it may not run there
  CHECK_THROWS_AS(TablePolicy(problem, {0}, {0}, {kNever, kNever}, {0}), ProblemError);
  CHECK_THROWS_AS(TablePolicy(problem, {0}, {-1}, {kNever, 0}, {0}), ProblemError);
  CHECK_THROWS_AS(TablePolicy(problem, {0}, {1}, {kNever, 0}, {0}), ProblemError);
  CHECK_THROWS_AS(TablePolicy(problem, {0, 0}, {0}, {kNever, 0}, {0}), ProblemError);
  CHECK_THROWS_AS(TablePolicy(problem, {0}, {0}, {kNever, 0}, {0, 0}), ProblemError);
  TablePolicy policy(problem, {0}, {0}, {kNever, 0}, {0});
  Draw(&policy, 1, 1);
  CHECK_THROWS_AS(policy.Learn({1, 2}, {}, 1), ProblemError);
  const Problem empty = IndependentOps(0, 0);
  TablePolicy nothing(empty, {}, {}, {}, {});
  nothing.Draw(1, kCount, 2, nullptr);
  nothing.Learn(Advantages(), {0.2, 0.2, 0.1, true}, 2);
  CHECK(nothing.PlacerEntropy() == 0);
}

}  // namespace
}  // namespace hplacer
