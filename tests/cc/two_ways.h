// A step with two ways from its first op to its last one, on two devices.

#ifndef HPLACER_TESTS_CC_TWO_WAYS_H_
#define HPLACER_TESTS_CC_TWO_WAYS_H_

#include <cstdint>

#include "problem_builder.h"

namespace hplacer {

struct TwoWays {
  TwoWays() {
    b.Link(here, there, "down");
    b.Link(there, here, "up");
    b.Edge(first, 0, long_way);
    b.Edge(first, 0, short_way);
    b.Edge(long_way, 0, last);
    b.Edge(short_way, 0, last);
  }

  ProblemBuilder b;
  const int32_t here = b.Device(), there = b.Device();
  const int32_t first = b.Op(100, {20}), long_way = b.Op(50, {1}), short_way = b.Op(10, {5}),
                last = b.Op(30);
};

}  // namespace hplacer

#endif  // HPLACER_TESTS_CC_TWO_WAYS_H_
