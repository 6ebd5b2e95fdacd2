#include "tf/hash.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

namespace hplacer {
namespace {

TEST_CASE("hashes are those of stored plans") {
  // Fingerprints on disk hold these values: a change needs a new plan format.
  CHECK(Mix(1, 2) == 0xf7858b38a8499bec);
  CHECK(HashBytes("") == 0xe311388afffcf7d4);
  CHECK(HashBytes("MatMul") == 0x982bfaca5bf2c4e3);
  CHECK(HashBytes("a string of more than two words", 7) == 0xcdaf5132841e2c77);
}

TEST_CASE("every byte, the length, the seed and the order count") {
  const std::string text = "0123456789abcdefghij";
  std::set<uint64_t> seen = {HashBytes(text)};
  size_t expected = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      seen.insert(HashBytes(changed));
      ++expected;
    }
    seen.insert(HashBytes(text.substr(0, i)));
    ++expected;
  }
  for (size_t zeros = 1; zeros < 20; ++zeros, ++expected) {
    seen.insert(HashBytes(std::string(zeros, '\0')));
  }
  for (uint64_t seed = 1; seed < 20; ++seed, ++expected) seen.insert(HashBytes(text, seed));
  CHECK(seen.size() == expected);
  CHECK(Mix(3, 5) != Mix(5, 3));
}

TEST_CASE("a hash does not depend on where the bytes lie") {
  const std::string text = "unaligned bytes, nine and more";
  for (size_t offset = 0; offset < 9; ++offset) {
    const std::string padded = std::string(offset, 'x') + text;
    CHECK(HashBytes(std::string_view(padded).substr(offset)) == HashBytes(text));
  }
}

}  // namespace
}  // namespace hplacer
