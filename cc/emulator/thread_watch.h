// Whether any thread of this process can act, told by the kernel and not guessed.
//
// The rule of quiescence. A process is quiescent at a moment if each of its threads
//  - waits for another thread (a futex without a time limit, or with a long one), or
//  - sleeps for a time of its own (a short timed wait) and has, since the last thread of the first
//    sort ran, woken up and gone to sleep again without waking anybody: it has looked, and there
//    was nothing to do. TensorFlow's polling of events is such a thread, and so is one of Python's
//    that waits for the interpreter's lock.
// So nothing moves any more, whatever the threads may be, unless something outside the process
// acts.
//
// How that is told. `/proc/self/task/N/stat` says whether a thread runs or was woken, `schedstat`
// how often it began to run, and `syscall` what it is blocked in. (`syscall` alone does not do: of
// a thread that was woken on another processor it tells for up to some ms what it was blocked in.)
// A first look at all threads is the base. If a second one finds each of those that wait blocked,
// and none has begun to run since, then all of them were blocked at all times between the two
// looks. The first look ends and the second one begins with those that sleep, so that they have
// looked in between, and whom they woke is seen after that. Of a thread that was seen blocked and
// has not begun to run since, the first look reads that number alone.
//
// What a thread waits for outside of the process (a child process, a pipe, the network) is not
// known. A thread that runs a kernel is waited for until it comes back; threads that ever called an
// emulated device (`Touch`), and the main thread, for half a second. After that the clock goes on
// without them, and says so in a line. So it does with one that only sleeps and wakes, three times
// for 20 ms or more with nothing done. Of all other threads those that wait outside, and those that
// sleep for longer than 20 ms, are taken to have nothing to do with the devices.
#ifndef HPLACER_EMULATOR_THREAD_WATCH_H_
#define HPLACER_EMULATOR_THREAD_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hplacer::emulator {

class ThreadWatch {
 public:
  // Of the threads of this process but the calling one, which is the one that looks.
  ThreadWatch();

  // The calling thread acts on an emulated device. Any thread may say so.
  static void Touch();
  // ... and runs a kernel between these two, which may hold others of their kind.
  static void BeginComputing();
  static void EndComputing();
  // The calling thread asks, again and again, whether events are done, and does nothing else.
  static void TouchByPolling();

  // One look. True if the process is quiescent. Time passes between looks: what is known of
  // sleeping threads is collected over several.
  bool IsQuiescent();

  // Something changed that sleeping threads may look for: what is known of them is void.
  void Restart() { base_.is_known = false; }

  // "thread 17 (python3) runs", of the thread that kept the process from being quiescent last.
  std::string Blocker() const;
  // Whether the system tells what threads do.
  bool IsSupported() const { return is_supported_; }

 private:
  static constexpr int64_t kUnknown = -1, kAsleep = -2;  // in place of a number of runs
  enum class State { kRuns, kWaits, kSleeps, kOutside };
  struct Thread {
    int id;
    int stat_file, runs_file, syscall_file;
    int status_file = -1;  // of those that were seen to sleep: others need none
    State state = State::kRuns;
    int64_t call = -1, argument = 0;  // the system call that it is blocked in
    int64_t runs = kUnknown;          // how often it had begun to run when it was that
    // How often it went to sleep, of one that sleeps or waits outside; for one that polls and runs
    // just now, with the sleep that comes.
    int64_t sleeps = 0;
    int64_t base_runs = -1, base_sleeps = 0;  // at the base; kAsleep: it was
    bool was_asleep = false;                  // at the last look
    bool is_asleep() const { return state == State::kSleeps || state == State::kOutside; }
  };
  // What is known of a thread over its life.
  struct Past {
    int64_t touches = 0;                           // when it was last found to sleep in vain
    int vain_sleeps = 0;                           // long ones in a row
    int64_t noted_ns = 0;                          // the base of the last of them
    bool is_ignored = false;                       // since it slept in vain, told in a line
    bool is_told = false;                          // ... that it was not waited for
    std::pair<int64_t, int64_t> long_call{-1, 0};  // in which it once slept for long
    int64_t long_sleep = 0;                        // ... the how manieth of its sleeps
    int64_t long_until_ns = 0;                     // the end of a wait whose limit was a long one
  };
  // The first look since which no thread has run, but for those that sleep.
  struct Base {
    bool is_known = false;
    int64_t real_ns = 0;
  };

  bool ListThreads();
  bool Look(Thread* thread);
  bool Confirm(Thread* thread);
  static std::optional<bool> IsBlocked(const Thread& thread);
  static std::optional<int64_t> CountRuns(const Thread& thread);
  bool LookAtAll(bool asleep, bool* is_as_base);
  bool FindWhatHolds(Thread* thread);
  bool HasLongLimit(int thread, const int64_t (&arguments)[6]);
  static bool Polls(const Thread& thread);
  bool MustAwait(const Thread& thread, int64_t waited_ns);
  void NoteVainSleep(const Thread& thread, int64_t waited_ns);
  void Tell(const Thread& thread, const char* how);
  void SetBlocker(const Thread& thread);

  std::vector<Thread> threads_;
  bool first_ran_ = false;  // of the threads, at the last look, which ended there
  std::map<int, Past> past_;
  Base base_;
  int own_id_, tasks_;
  int64_t num_threads_ = -1;
  bool is_supported_ = true;
  std::string blocker_;
};

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_THREAD_WATCH_H_
