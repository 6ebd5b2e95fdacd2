#include "tf/parallel.h"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace hplacer {
namespace {

TEST_CASE("the ranges of a parallel loop cover everything once") {
  for (size_t n : {0, 1, 4095, 4096, 8192, 100'001}) {
    std::vector<int> visits(n);
    ParallelFor(n, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) ++visits[i];
    });
    for (size_t i = 0; i < n; ++i) REQUIRE(visits[i] == 1);
  }
}

TEST_CASE("an exception of any range reaches the caller after all ranges have ended") {
  constexpr size_t kSize = 100'000;
  for (size_t culprit : {size_t{0}, kSize - 1}) {
    std::atomic<size_t> covered = 0;
    const auto body = [&](size_t begin, size_t end) {
      covered += end - begin;
      if (begin <= culprit && culprit < end) throw std::runtime_error(std::to_string(culprit));
    };
    CHECK_THROWS_WITH_AS(ParallelFor(kSize, body), std::to_string(culprit).c_str(),
                         std::runtime_error);
    CHECK(covered == kSize);
  }
}

TEST_CASE("of several exceptions that of the first range is thrown") {
  const auto body = [](size_t begin, size_t) { throw std::runtime_error(std::to_string(begin)); };
  CHECK_THROWS_WITH_AS(ParallelFor(100'000, body), "0", std::runtime_error);
}

}  // namespace
}  // namespace hplacer
