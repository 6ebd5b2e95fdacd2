// The streams of emulated devices in virtual time: queues of kernels, copies, marks, waits and host
// callbacks, as StreamExecutor's contract has them.
//
// Each stream does its work in order, one piece at a time. A copy occupies a channel of the machine
// for its time; a channel serves one copy at a time, and of those that are ready the one that was
// ready first (then the one that was enqueued first). A mark is done when its stream comes to it;
// a wait holds its stream until a mark is done. A host callback holds its stream until the host has
// run it.
//
// Time moves by `AdvanceTo` only. Not thread-safe: `Clock` holds the lock. All times are ns.
#ifndef HPLACER_EMULATOR_STREAMS_H_
#define HPLACER_EMULATOR_STREAMS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hplacer::emulator {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int kHost = -1;  // in place of a device's number

class Stream;

// A point in a stream; shared by the event that it was recorded for and by those who wait for it.
struct Mark {
  bool is_seen_by_host = false;  // somebody of the host may ask whether it is done
  int64_t done_ns = kNever;
  std::vector<Stream*> held;  // streams whose next piece of work waits for it
  bool is_done() const { return done_ns != kNever; }
};
using MarkPtr = std::shared_ptr<Mark>;

// What ran, and when.
struct Record {
  enum Kind { kKernel, kCopy, kHostOp };
  Kind kind;
  int from, to;  // devices; of a kernel both are its own
  int64_t enqueued_ns = kNever, start_ns = kNever, end_ns = kNever;
  int64_t bytes = 0;
  std::string name, type;  // of the op; empty for copies
};
using RecordPtr = std::shared_ptr<Record>;

// A copy's way.
struct Channel {
  bool is_busy = false;
  std::set<std::tuple<int64_t, int64_t, Stream*>> ready;  // since when, order of enqueueing
};

class Stream {
 public:
  explicit Stream(int device) : device_(device) {}
  int device() const { return device_; }
  bool is_idle() const { return !is_held_ && work_.empty(); }

 private:
  friend class Streams;
  struct Work {
    int64_t order = 0;
    int64_t duration_ns = 0;
    Channel* channel = nullptr;
    MarkPtr done, awaited;  // at most one of these and the next
    std::function<void()> callback;
    RecordPtr record;
  };
  const int device_;
  std::deque<Work> work_;
  bool is_held_ = false;  // by the piece of work at its front
};

class Streams {
 public:
  int64_t now_ns() const { return now_ns_; }

  // TensorFlow keeps its streams until the process ends.
  Stream* Add(int device);
  // An idle one.
  void Remove(Stream* stream);

  void AddKernel(Stream* stream, int64_t duration_ns, RecordPtr record);
  void AddCopy(Stream* stream, Channel* channel, int64_t duration_ns, RecordPtr record);
  MarkPtr AddMark(Stream* stream, bool is_seen_by_host);
  void AddWait(Stream* stream, const MarkPtr& mark);
  void AddCallback(Stream* stream, std::function<void()> callback);

  // The next callback whose turn has come, with its stream; null if there is none. `Finish` tells
  // that it has run.
  std::pair<Stream*, std::function<void()>> TakeCallback();
  void Finish(Stream* stream);

  // When something ends next; kNever if nothing runs.
  int64_t NextNs() const;
  // Ends all that ends at that time or before. Not beyond `NextNs`. True if the host may notice: a
  // mark that it may see is done, or a callback's turn has come.
  bool AdvanceTo(int64_t time_ns);

 private:
  void Add(Stream* stream, Stream::Work work);
  void Continue(std::vector<Stream*> streams);
  void Serve(Channel* channel);
  void End(Stream* stream);
  void Start(Stream* stream);

  std::vector<std::unique_ptr<Stream>> streams_;
  int64_t now_ns_ = 0;
  int64_t order_ = 0;
  bool is_noticeable_ = false;
  std::set<std::tuple<int64_t, int64_t, Stream*>> ends_;  // of work that runs, by time and order
  std::set<std::tuple<int64_t, int64_t, Stream*>> callbacks_;  // since when, order of enqueueing
};

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_STREAMS_H_
