// A small, stable 64-bit hash for fingerprints.
//
// Fingerprints are written to disk and shared between machines and TensorFlow versions, so the
// hash must never depend on a library's choice: it is defined here and changes only together
// with the plan format. Multiply-and-fold mixing as in wyhash (Wang Yi, public domain idea).
#ifndef HPLACER_TF_HASH_H_
#define HPLACER_TF_HASH_H_

#include <cstdint>
#include <cstring>
#include <string_view>

namespace hplacer {

__extension__ typedef unsigned __int128 Uint128;

// Mixes two words; not commutative.
inline uint64_t Mix(uint64_t a, uint64_t b) {
  const Uint128 product =
      static_cast<Uint128>(a ^ 0xa0761d6478bd642fULL) * (b ^ 0xe7037ed1a0b428dbULL);
  return (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) + a * 3;
}

inline uint64_t HashBytes(std::string_view bytes, uint64_t seed = 0) {
  uint64_t hash = Mix(seed, bytes.size());
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = Mix(hash, word);
  }
  uint64_t tail = 0;
  if (i < bytes.size()) std::memcpy(&tail, bytes.data() + i, bytes.size() - i);
  return Mix(hash, tail);
}

}  // namespace hplacer

#endif  // HPLACER_TF_HASH_H_
