// The finalizer of SplitMix64: equal numbers give equal ones, others give what looks random.
//
// Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.

#ifndef HPLACER_ENGINE_PROBLEM_MIX_BITS_H_
#define HPLACER_ENGINE_PROBLEM_MIX_BITS_H_

#include <cstdint>

namespace hplacer {

inline uint64_t MixBits(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_MIX_BITS_H_
