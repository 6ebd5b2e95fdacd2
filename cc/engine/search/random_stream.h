// A stream of random numbers that depends on nothing but its seed: SplitMix64.
//
// Streams of different keys are independent, which gives every candidate of a parallel search its
// own.

#ifndef HPLACER_ENGINE_SEARCH_RANDOM_STREAM_H_
#define HPLACER_ENGINE_SEARCH_RANDOM_STREAM_H_

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/problem/mix_bits.h"

namespace hplacer {

class RandomStream {
 public:
  explicit RandomStream(uint64_t seed) : state_(seed) {}
  RandomStream(uint64_t seed, uint64_t a, uint64_t b)
      : state_(MixBits(MixBits(MixBits(seed) ^ a) ^ b)) {}

  uint64_t Next() { return MixBits(state_ += kGamma); }

  // Uniform in 0..count-1; count must be positive.
  int32_t Below(int64_t count) {
    return static_cast<int32_t>(static_cast<unsigned __int128>(Next()) * count >> 64);
  }
  // Uniform in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // Of mean 1.
  double Exponential() { return -std::log(1 - Uniform()); }
  // Uniform in the logarithm, in 1..limit.
  int32_t LogBelow(int32_t limit) {
    return static_cast<int32_t>(std::exp(Uniform() * std::log(limit + 0.999)));
  }

  template <typename T>
  void Shuffle(std::vector<T>* items) {
    for (size_t i = items->size(); i > 1; --i) {
      std::swap((*items)[i - 1], (*items)[Below(static_cast<int64_t>(i))]);
    }
  }

 private:
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;

  uint64_t state_;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_RANDOM_STREAM_H_
