#include "emulator/streams.h"

#include <doctest/doctest.h>

#include <ostream>
#include <string>
#include <vector>

namespace hplacer::emulator {
namespace {

// Streams, and what is asked of them in a test's words. Times are ns; the machine has channels `a`
// and `b`.
struct Fixture {
  Streams streams;
  Channel a, b;
  std::vector<std::string> called;

  Stream* NewStream(int device = 0) { return streams.Add(device); }

  RecordPtr Kernel(Stream* stream, int64_t duration_ns) {
    auto record = std::make_shared<Record>();
    streams.AddKernel(stream, duration_ns, record);
    return record;
  }

  RecordPtr Copy(Stream* stream, Channel* channel, int64_t duration_ns) {
    auto record = std::make_shared<Record>();
    streams.AddCopy(stream, channel, duration_ns, record);
    return record;
  }

  void Callback(Stream* stream, const std::string& name) {
    streams.AddCallback(stream, [this, name] { called.push_back(name); });
  }

  // Runs the callbacks whose turn has come, and no others.
  void CallAll() {
    for (;;) {
      auto [stream, callback] = streams.TakeCallback();
      if (stream == nullptr) return;
      callback();
      streams.Finish(stream);
    }
  }

  // As the clock does, without the host: to each event until nothing runs.
  void RunAll() {
    while (streams.NextNs() != kNever) streams.AdvanceTo(streams.NextNs());
  }
};

struct Span {
  int64_t start_ns, end_ns;
  bool operator==(const Span& other) const {
    return start_ns == other.start_ns && end_ns == other.end_ns;
  }
};

std::ostream& operator<<(std::ostream& out, const Span& span) {
  return out << span.start_ns << " to " << span.end_ns;
}

Span SpanOf(const RecordPtr& record) { return {record->start_ns, record->end_ns}; }

const Span kNotYet{kNever, kNever};

// ---- kernels ----

TEST_CASE_FIXTURE(Fixture, "kernels of a stream run one after the other, in order") {
  Stream* stream = NewStream();
  const RecordPtr first = Kernel(stream, 10), second = Kernel(stream, 5);
  CHECK(streams.NextNs() == 10);
  CHECK(SpanOf(first) == Span{0, kNever});
  streams.AdvanceTo(10);
  CHECK(streams.NextNs() == 15);
  CHECK_FALSE(stream->is_idle());
  streams.AdvanceTo(15);
  CHECK(stream->is_idle());
  CHECK(streams.NextNs() == kNever);
  CHECK(SpanOf(first) == Span{0, 10});
  CHECK(SpanOf(second) == Span{10, 15});
}

TEST_CASE_FIXTURE(Fixture, "streams run beside each other") {
  const RecordPtr one = Kernel(NewStream(0), 10), other = Kernel(NewStream(0), 7),
                  third = Kernel(NewStream(1), 12);
  RunAll();
  CHECK(SpanOf(one) == Span{0, 10});
  CHECK(SpanOf(other) == Span{0, 7});
  CHECK(SpanOf(third) == Span{0, 12});
  CHECK(streams.now_ns() == 12);
}

TEST_CASE_FIXTURE(Fixture, "a kernel starts when it is enqueued if its stream is idle") {
  Stream* stream = NewStream();
  Kernel(stream, 10);
  RunAll();
  streams.AdvanceTo(25);
  const RecordPtr late = Kernel(stream, 4);
  CHECK(late->enqueued_ns == 25);
  RunAll();
  CHECK(SpanOf(late) == Span{25, 29});
}

TEST_CASE_FIXTURE(Fixture, "work without a duration takes none, and has its place in the order") {
  Stream* stream = NewStream();
  const RecordPtr at_once = Kernel(stream, 0);
  CHECK(SpanOf(at_once) == Span{0, 0});
  CHECK(stream->is_idle());
  const RecordPtr before = Kernel(stream, 3), none = Kernel(stream, 0), after = Kernel(stream, 2);
  CHECK(SpanOf(none) == kNotYet);
  RunAll();
  CHECK(SpanOf(before) == Span{0, 3});
  CHECK(SpanOf(none) == Span{3, 3});
  CHECK(SpanOf(after) == Span{3, 5});
}

TEST_CASE_FIXTURE(Fixture, "time between two events ends nothing") {
  Stream* stream = NewStream();
  const RecordPtr kernel = Kernel(stream, 10);
  streams.AdvanceTo(9);
  CHECK(streams.now_ns() == 9);
  CHECK(SpanOf(kernel) == Span{0, kNever});
  streams.AdvanceTo(4);  // time does not go back
  CHECK(streams.now_ns() == 9);
}

// ---- marks and waits ----

TEST_CASE_FIXTURE(Fixture, "a mark is done when its stream comes to it") {
  Stream* stream = NewStream();
  const MarkPtr at_once = streams.AddMark(stream, true);
  CHECK(at_once->done_ns == 0);
  Kernel(stream, 10);
  const MarkPtr between = streams.AddMark(stream, true);
  Kernel(stream, 10);
  CHECK_FALSE(between->is_done());
  streams.AdvanceTo(10);
  CHECK(between->done_ns == 10);
}

TEST_CASE_FIXTURE(Fixture, "a wait holds its stream until the mark of another one is done") {
  Stream *producer = NewStream(0), *consumer = NewStream(1);
  Kernel(producer, 10);
  const MarkPtr mark = streams.AddMark(producer, true);
  const RecordPtr later = Kernel(producer, 100);
  const RecordPtr before = Kernel(consumer, 4);
  streams.AddWait(consumer, mark);
  const RecordPtr after = Kernel(consumer, 3);
  RunAll();
  CHECK(SpanOf(before) == Span{0, 4});
  CHECK(SpanOf(after) == Span{10, 13});
  CHECK(SpanOf(later) == Span{10, 110});
}

TEST_CASE_FIXTURE(Fixture, "a wait for a mark that is done, or for none, holds nothing") {
  Stream *producer = NewStream(0), *consumer = NewStream(1);
  const MarkPtr mark = streams.AddMark(producer, true);
  streams.AddWait(consumer, mark);
  streams.AddWait(consumer, nullptr);  // of an event that was never recorded
  CHECK(consumer->is_idle());
}

TEST_CASE_FIXTURE(Fixture, "a wait is for what was recorded last before it, as CUDA's are") {
  Stream *producer = NewStream(0), *consumer = NewStream(1);
  // An event that is recorded twice: each record is a mark of its own.
  Kernel(producer, 10);
  MarkPtr event = streams.AddMark(producer, true);
  Kernel(producer, 10);
  event = streams.AddMark(producer, true);
  streams.AddWait(consumer, event);  // for the second record, at 20
  Kernel(producer, 10);
  event = streams.AddMark(producer, true);  // after the wait: of no account to it
  const RecordPtr waited = Kernel(consumer, 5);
  RunAll();
  CHECK(SpanOf(waited) == Span{20, 25});
  CHECK(event->done_ns == 30);
}

TEST_CASE_FIXTURE(Fixture, "one mark lets all go that wait for it") {
  Stream* producer = NewStream();
  Kernel(producer, 10);
  const MarkPtr mark = streams.AddMark(producer, true);
  std::vector<RecordPtr> waited;
  for (int i = 0; i < 3; ++i) {
    Stream* stream = NewStream();
    streams.AddWait(stream, mark);
    waited.push_back(Kernel(stream, 1 + i));
  }
  RunAll();
  for (int i = 0; i < 3; ++i) CHECK(SpanOf(waited[i]) == Span{10, 11 + i});
}

TEST_CASE_FIXTURE(Fixture, "waits follow each other through streams without taking time") {
  std::vector<Stream*> line;
  for (int i = 0; i < 4; ++i) line.push_back(NewStream());
  Kernel(line[0], 7);
  for (int i = 1; i < 4; ++i) streams.AddWait(line[i], streams.AddMark(line[i - 1], true));
  const RecordPtr last = Kernel(line[3], 1);
  RunAll();
  CHECK(SpanOf(last) == Span{7, 8});
}

TEST_CASE_FIXTURE(Fixture, "two streams in turns: 10, then 4, then 10 again") {
  Stream *one = NewStream(0), *other = NewStream(1);
  const RecordPtr first = Kernel(one, 10);
  streams.AddWait(other, streams.AddMark(one, true));
  const RecordPtr second = Kernel(other, 4);
  streams.AddWait(one, streams.AddMark(other, true));
  const RecordPtr third = Kernel(one, 10);
  RunAll();
  CHECK(SpanOf(first) == Span{0, 10});
  CHECK(SpanOf(second) == Span{10, 14});
  CHECK(SpanOf(third) == Span{14, 24});
}

// ---- copies ----

TEST_CASE_FIXTURE(Fixture, "a channel serves one copy at a time, channels beside each other") {
  const RecordPtr first = Copy(NewStream(), &a, 10), second = Copy(NewStream(), &a, 10),
                  other = Copy(NewStream(), &b, 10);
  RunAll();
  CHECK(SpanOf(first) == Span{0, 10});
  CHECK(SpanOf(second) == Span{10, 20});
  CHECK(SpanOf(other) == Span{0, 10});
}

TEST_CASE_FIXTURE(Fixture, "the copy that was ready first is first, not the one enqueued first") {
  Stream *busy = NewStream(), *late = NewStream(), *early = NewStream();
  Copy(busy, &a, 20);
  Kernel(late, 8);
  const RecordPtr enqueued_first = Copy(late, &a, 5);  // ready at 8
  Kernel(early, 3);
  const RecordPtr ready_first = Copy(early, &a, 5);  // ready at 3
  RunAll();
  CHECK(SpanOf(ready_first) == Span{20, 25});
  CHECK(SpanOf(enqueued_first) == Span{25, 30});
}

TEST_CASE_FIXTURE(Fixture, "of copies that are ready at once the one enqueued first is first") {
  // Both end their kernel at 10. Whichever stream is older, the order of enqueueing counts.
  Stream *older = NewStream(), *younger = NewStream();
  Kernel(younger, 10);
  Kernel(older, 10);
  const RecordPtr first = Copy(younger, &a, 5), second = Copy(older, &a, 5);
  RunAll();
  CHECK(SpanOf(first) == Span{10, 15});
  CHECK(SpanOf(second) == Span{15, 20});
}

TEST_CASE_FIXTURE(Fixture, "copies that become ready as the channel gets free compete with it") {
  Stream *busy = NewStream(), *other = NewStream();
  const RecordPtr running = Copy(busy, &a, 10);
  Kernel(other, 10);
  const RecordPtr enqueued_first = Copy(other, &a, 5), next = Copy(busy, &a, 5);
  RunAll();
  CHECK(SpanOf(running) == Span{0, 10});
  CHECK(SpanOf(enqueued_first) == Span{10, 15});
  CHECK(SpanOf(next) == Span{15, 20});
}

TEST_CASE_FIXTURE(Fixture, "a copy behind a wait leaves the channel to others") {
  Stream *compute = NewStream(), *held = NewStream(), *free = NewStream();
  Kernel(compute, 10);
  streams.AddWait(held, streams.AddMark(compute, true));
  const RecordPtr waited = Copy(held, &a, 5), passed = Copy(free, &a, 20);
  RunAll();
  CHECK(SpanOf(passed) == Span{0, 20});
  CHECK(SpanOf(waited) == Span{20, 25});
}

TEST_CASE_FIXTURE(Fixture, "two copies released by one mark go in the order of enqueueing") {
  Stream *compute = NewStream(), *one = NewStream(), *other = NewStream();
  Kernel(compute, 10);
  const MarkPtr mark = streams.AddMark(compute, true);
  streams.AddWait(other, mark);
  streams.AddWait(one, mark);
  const RecordPtr first = Copy(one, &a, 5), second = Copy(other, &a, 5);
  RunAll();
  CHECK(SpanOf(first) == Span{10, 15});
  CHECK(SpanOf(second) == Span{15, 20});
}

TEST_CASE_FIXTURE(Fixture, "a copy without a duration waits for its channel, too") {
  const RecordPtr running = Copy(NewStream(), &a, 10), none = Copy(NewStream(), &a, 0),
                  next = Copy(NewStream(), &a, 3);
  RunAll();
  CHECK(SpanOf(running) == Span{0, 10});
  CHECK(SpanOf(none) == Span{10, 10});
  CHECK(SpanOf(next) == Span{10, 13});
  const RecordPtr alone = Copy(NewStream(), &a, 0);
  CHECK(streams.NextNs() == 13);
  RunAll();
  CHECK(SpanOf(alone) == Span{13, 13});
}

TEST_CASE_FIXTURE(Fixture, "copies and kernels of one stream keep their order") {
  Stream* stream = NewStream();
  const RecordPtr in = Copy(stream, &a, 4), kernel = Kernel(stream, 6), out = Copy(stream, &b, 5);
  RunAll();
  CHECK(SpanOf(in) == Span{0, 4});
  CHECK(SpanOf(kernel) == Span{4, 10});
  CHECK(SpanOf(out) == Span{10, 15});
}

// ---- callbacks ----

TEST_CASE_FIXTURE(Fixture, "a callback holds its stream until the host has run it") {
  Stream* stream = NewStream();
  Kernel(stream, 10);
  Callback(stream, "after 10");
  const RecordPtr behind = Kernel(stream, 5);
  CHECK(streams.TakeCallback().first == nullptr);  // its turn has not come
  RunAll();
  CHECK(streams.now_ns() == 10);
  CHECK(streams.NextNs() == kNever);  // nothing runs before the host has acted
  streams.AdvanceTo(12);              // ... which another stream may take time for
  CallAll();
  CHECK(called == std::vector<std::string>{"after 10"});
  RunAll();
  CHECK(SpanOf(behind) == Span{12, 17});
  CHECK(stream->is_idle());
}

TEST_CASE_FIXTURE(Fixture, "callbacks of a stream run one after the other, others beside them") {
  Stream *one = NewStream(), *other = NewStream();
  Callback(one, "1a");
  Callback(one, "1b");
  Callback(other, "2");
  const MarkPtr end = streams.AddMark(one, true);
  auto [stream, callback] = streams.TakeCallback();
  CHECK(stream == one);
  callback();
  CHECK(streams.TakeCallback().first == other);
  CHECK(streams.TakeCallback().first == nullptr);  // 1b waits for 1a
  streams.Finish(one);
  CHECK_FALSE(end->is_done());
  CallAll();
  CHECK(called == std::vector<std::string>{"1a", "1b"});
  CHECK(end->is_done());
  CHECK_FALSE(other->is_idle());
  streams.Finish(other);
  CHECK(other->is_idle());
}

TEST_CASE_FIXTURE(Fixture, "a callback may enqueue, on its own stream behind what is there") {
  Stream* stream = NewStream();
  RecordPtr added;
  streams.AddCallback(stream, [&] { added = Kernel(stream, 5); });
  const RecordPtr there = Kernel(stream, 10);
  CallAll();
  RunAll();
  CHECK(SpanOf(there) == Span{0, 10});
  CHECK(SpanOf(added) == Span{10, 15});
}

TEST_CASE_FIXTURE(Fixture, "a mark behind a callback lets others go when the host has run it") {
  Stream *one = NewStream(), *other = NewStream();
  Callback(one, "held");
  streams.AddWait(other, streams.AddMark(one, true));
  const RecordPtr waited = Kernel(other, 5);
  Kernel(NewStream(), 8);
  RunAll();
  CHECK(SpanOf(waited) == kNotYet);
  CallAll();
  RunAll();
  CHECK(SpanOf(waited) == Span{8, 13});
}

// ---- events ----

TEST_CASE_FIXTURE(Fixture, "the host may notice marks that it asks for, and callbacks") {
  Stream* stream = NewStream();
  Kernel(stream, 10);
  streams.AddMark(stream, false);
  Kernel(stream, 10);
  streams.AddMark(stream, true);
  Kernel(stream, 10);
  Callback(stream, "at 30");
  CHECK_FALSE(streams.AdvanceTo(10));
  CHECK_FALSE(streams.AdvanceTo(15));
  CHECK(streams.AdvanceTo(20));
  CHECK(streams.AdvanceTo(30));
  CHECK_FALSE(streams.AdvanceTo(40));
}

TEST_CASE_FIXTURE(Fixture, "all that ends at one time ends before anything starts") {
  // Both copies end at 10; what they release asks for both channels, crosswise.
  Stream *one = NewStream(), *other = NewStream(), *crossing = NewStream(), *back = NewStream();
  Copy(one, &a, 10);
  const MarkPtr one_done = streams.AddMark(one, true);
  Copy(other, &b, 10);
  const MarkPtr other_done = streams.AddMark(other, true);
  streams.AddWait(crossing, one_done);
  streams.AddWait(back, other_done);
  const RecordPtr over_b = Copy(crossing, &b, 3), over_a = Copy(back, &a, 4);
  streams.AdvanceTo(10);
  CHECK(over_b->start_ns == 10);
  CHECK(over_a->start_ns == 10);
  RunAll();
  CHECK(SpanOf(over_b) == Span{10, 13});
  CHECK(SpanOf(over_a) == Span{10, 14});
}

TEST_CASE_FIXTURE(Fixture, "callbacks of one time are called in the order of enqueueing") {
  std::vector<Stream*> all;
  for (int i = 0; i < 3; ++i) all.push_back(NewStream());
  for (Stream* stream : all) Kernel(stream, 10);
  for (const int i : {1, 0, 2}) Callback(all[i], std::to_string(i));
  RunAll();
  CallAll();
  CHECK(called == std::vector<std::string>{"1", "0", "2"});
}

}  // namespace
}  // namespace hplacer::emulator
