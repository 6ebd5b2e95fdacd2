#include "engine/schedulers/device_timeline.h"

#include <doctest/doctest.h>

namespace hplacer {
namespace {

using Policy = DeviceTimeline::Policy;

TEST_CASE("ops are appended to the slot that is free first") {
  DeviceTimeline timeline(2, Policy::kAppend);
  timeline.Run(0, 10);
  timeline.Run(5, 20);
  CHECK(timeline.FreeNs() == 10);
  CHECK(timeline.StartNs(3, 1) == 10);
  CHECK(timeline.StartNs(12, 1) == 12);
}

TEST_CASE("appending leaves gaps alone") {
  DeviceTimeline timeline(1, Policy::kAppend);
  timeline.Run(50, 10);
  CHECK(timeline.StartNs(0, 5) == 60);
}

TEST_CASE("inserting takes the first gap that is long enough, and splits it") {
  DeviceTimeline timeline(1, Policy::kInsert);
  timeline.Run(10, 10);  // a gap of 10
  timeline.Run(60, 10);  // and one of 40
  CHECK(timeline.StartNs(0, 10) == 0);
  CHECK(timeline.StartNs(0, 11) == 20);
  CHECK(timeline.StartNs(35, 25) == 35);
  CHECK(timeline.StartNs(36, 25) == 70);
  timeline.Run(35, 20);  // leaves 20..35 and 55..60
  CHECK(timeline.StartNs(0, 15) == 20);
  CHECK(timeline.StartNs(30, 5) == 30);
  CHECK(timeline.StartNs(31, 5) == 55);
  CHECK(timeline.StartNs(0, 16) == 70);
  CHECK(timeline.FreeNs() == 70);
}

TEST_CASE("a gap that is filled is gone") {
  DeviceTimeline timeline(1, Policy::kInsert);
  timeline.Run(10, 10);
  timeline.Run(0, 10);
  CHECK(timeline.StartNs(0, 1) == 20);
}

}  // namespace
}  // namespace hplacer
