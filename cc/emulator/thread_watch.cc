#include "emulator/thread_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <utility>

namespace hplacer::emulator {
namespace {

constexpr int64_t kLongNs = 20'000'000;      // longer than Python's wait for its lock, 5 ms
constexpr int64_t kLongestNs = 500'000'000;  // that a thread is waited for which runs no kernel
// A time limit as long as this is for what should not happen: the thread waits for another one.
constexpr int64_t kLongLimitNs = 100'000'000;
constexpr int kVainSleeps = 3;

// How often each thread has touched a device. Never destroyed: threads outlive static objects.
struct Touch {
  std::atomic<int64_t> number{0};
  std::atomic<bool> polls{false};
  std::atomic<int> kernels{0};  // that run, one in the other
};
struct Touches {
  std::mutex mutex;
  std::map<int, Touch> by_thread;
};
Touches& AllTouches() {
  static auto* touches = new Touches;
  return *touches;
}

int ThreadId() { return static_cast<int>(syscall(SYS_gettid)); }

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

int64_t NowNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return Nanoseconds(now);
}

int OpenOf(int thread, const char* name) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/" + name;
  return open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

std::optional<std::string> ReadAgain(int file) {
  char buffer[4096];
  const ssize_t size = pread(file, buffer, sizeof buffer, 0);
  if (size <= 0) return std::nullopt;
  return std::string(buffer, size);
}

// Behind the thread's name, which may be any, in the text of `stat`. Null if there is none.
const char* FieldsOf(const std::string& stat) {
  const size_t end = stat.rfind(')');
  return end == std::string::npos ? nullptr : stat.c_str() + end;
}

// How often a thread left its processor by itself, in the text of `status`.
int64_t SleepsOf(const std::string& status) {
  constexpr char kKey[] = "\nvoluntary_ctxt_switches:";
  const size_t at = status.find(kKey);
  return at == std::string::npos ? 0 : strtoll(status.c_str() + at + strlen(kKey), nullptr, 10);
}

// How often a thread began to run, in the text of `schedstat`: time that it ran, time that it
// waited for a processor, and that.
int64_t RunsOf(const std::string& schedstat) {
  const size_t at = schedstat.rfind(' ');
  return at == std::string::npos ? 0 : strtoll(schedstat.c_str() + at, nullptr, 10);
}

bool IsFileOnDisk(int64_t descriptor) {
  struct stat found;
  return fstat(static_cast<int>(descriptor), &found) == 0 && S_ISREG(found.st_mode);
}

const char* NameOfCall(int64_t call) {
  switch (call) {
    case SYS_clock_nanosleep:
      return "sleeps";
    case SYS_wait4:
    case SYS_waitid:
      return "waits for another process";
    case SYS_futex:
      return "waits with a time limit";
    case SYS_read:
    case SYS_recvfrom:
    case SYS_recvmsg:
      return "waits for input";
    default:
      return "waits for something outside of the process";
  }
}

Touch& OwnTouch() {
  static thread_local Touch* const own = [] {
    Touches& touches = AllTouches();
    std::lock_guard<std::mutex> lock(touches.mutex);
    return &touches.by_thread[ThreadId()];
  }();
  return *own;
}

}  // namespace

void ThreadWatch::Touch() {
  OwnTouch().number.fetch_add(1, std::memory_order_relaxed);
  OwnTouch().polls.store(false, std::memory_order_relaxed);
}

void ThreadWatch::BeginComputing() { ++OwnTouch().kernels; }
void ThreadWatch::EndComputing() { --OwnTouch().kernels; }
void ThreadWatch::TouchByPolling() { OwnTouch().polls = true; }

ThreadWatch::ThreadWatch() : own_id_(ThreadId()) {
  tasks_ = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  is_supported_ = tasks_ >= 0;
  std::string own = "/proc/self/task/" + std::to_string(own_id_) + "/syscall";
  is_supported_ &= access(own.c_str(), R_OK) == 0;
}

// False if threads come and go just now.
bool ThreadWatch::ListThreads() {
  struct stat tasks;
  if (fstat(tasks_, &tasks) != 0) return false;
  // A link for each thread, beside those that every directory has.
  if (static_cast<int64_t>(tasks.st_nlink) - 2 == num_threads_) return true;
  for (const Thread& thread : threads_) {
    for (const int file :
         {thread.stat_file, thread.runs_file, thread.syscall_file, thread.status_file}) {
      if (file >= 0) close(file);
    }
  }
  threads_.clear();
  first_ran_ = false;
  Restart();
  DIR* directory = opendir("/proc/self/task");
  if (directory == nullptr) return false;
  num_threads_ = 0;
  while (const dirent* entry = readdir(directory)) {
    const int id = atoi(entry->d_name);
    if (id == 0) continue;
    ++num_threads_;
    if (id == own_id_) continue;
    threads_.emplace_back();
    threads_.back().id = id;
    threads_.back().stat_file = OpenOf(id, "stat");
    threads_.back().runs_file = OpenOf(id, "schedstat");
    threads_.back().syscall_file = OpenOf(id, "syscall");
  }
  closedir(directory);
  std::map<int, Past> past;
  for (const Thread& thread : threads_) {
    if (const auto known = past_.find(thread.id); known != past_.end()) past.insert(*known);
  }
  past_ = std::move(past);
  return true;
}

// False if the thread has ended.
bool ThreadWatch::Look(Thread* thread) {
  if (base_.is_known && thread->state == State::kWaits) return Confirm(thread);
  // Before the state: if the thread runs in between, the next look finds another number.
  const std::optional<int64_t> runs = CountRuns(*thread);
  if (!runs) return false;
  const bool is_known = thread->runs == *runs && thread->state != State::kRuns;
  // It was blocked, and has not begun to run since. If it was woken, the second look sees that.
  if (is_known && thread->state == State::kWaits) return true;
  const std::optional<bool> is_blocked = IsBlocked(*thread);
  if (!is_blocked) return false;
  if (is_known && *is_blocked) return true;
  thread->runs = *runs;
  thread->state = State::kRuns;
  if (*is_blocked && !FindWhatHolds(thread)) return false;
  const bool polls = thread->state == State::kRuns && Polls(*thread);
  if (polls) thread->state = State::kSleeps;
  if (!thread->is_asleep()) return true;
  if (thread->status_file < 0) thread->status_file = OpenOf(thread->id, "status");
  const std::optional<std::string> status = ReadAgain(thread->status_file);
  if (!status) return false;
  thread->sleeps = SleepsOf(*status) + (polls && !base_.is_known ? 1 : 0);
  if (polls) thread->runs = kUnknown;  // what it is blocked in is found anew
  return true;
}

// The second look at a thread that waited at the first one. False if it has ended.
bool ThreadWatch::Confirm(Thread* thread) {
  const std::optional<bool> is_blocked = IsBlocked(*thread);
  if (!is_blocked) return false;
  if (!*is_blocked) thread->state = State::kRuns;
  const std::optional<int64_t> runs = CountRuns(*thread);  // behind the state
  if (!runs) return false;
  if (*runs != thread->runs) thread->runs = kUnknown;
  return true;
}

// Null if the thread has ended.
std::optional<bool> ThreadWatch::IsBlocked(const Thread& thread) {
  const std::optional<std::string> stat = ReadAgain(thread.stat_file);
  if (!stat) return std::nullopt;
  const char* fields = FieldsOf(*stat);
  return fields != nullptr && fields[2] != 'R';
}

// How often it began to run. Null if it has ended.
std::optional<int64_t> ThreadWatch::CountRuns(const Thread& thread) {
  const std::optional<std::string> schedstat = ReadAgain(thread.runs_file);
  if (!schedstat) return std::nullopt;
  return RunsOf(*schedstat);
}

bool ThreadWatch::Polls(const Thread& thread) {
  Touches& all = AllTouches();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_thread.find(thread.id);
  return found != all.by_thread.end() && found->second.polls;
}

// Of a thread that was blocked just now, and is taken to run if it is so no more. False if it has
// ended.
bool ThreadWatch::FindWhatHolds(Thread* thread) {
  const std::optional<std::string> text = ReadAgain(thread->syscall_file);
  if (!text) return false;
  thread->call = -1;
  if (text->compare(0, 7, "running") == 0 || (*text)[0] == '-') return true;
  int64_t arguments[6];
  char* at = nullptr;
  thread->call = strtoll(text->c_str(), &at, 10);
  for (int64_t& argument : arguments) argument = static_cast<int64_t>(strtoull(at, &at, 16));
  thread->argument = arguments[0];
  switch (thread->call) {
    case SYS_futex:
      thread->state =
          arguments[3] == 0 || HasLongLimit(thread->id, arguments) ? State::kWaits : State::kSleeps;
      break;
#ifdef SYS_nanosleep
    case SYS_nanosleep:
#endif
    case SYS_clock_nanosleep:
      thread->state = State::kSleeps;
      break;
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_preadv:
    case SYS_pwritev:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_sched_yield:
      break;  // comes back by itself, soon
    case SYS_read:
    case SYS_write:
    case SYS_readv:
    case SYS_writev:
      if (!IsFileOnDisk(arguments[0])) thread->state = State::kOutside;
      break;
    default:
      thread->state = State::kOutside;
  }
  return true;
}

// Of a timed wait on a futex. What was a long one stays one.
bool ThreadWatch::HasLongLimit(int thread, const int64_t (&arguments)[6]) {
  timespec limit;
  iovec to{&limit, sizeof limit}, from{reinterpret_cast<void*>(arguments[3]), sizeof limit};
  // By the system, as the thread may be gone, and its stack with it.
  if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != sizeof limit) return false;
  const auto operation = static_cast<int>(arguments[1]);
  const bool is_relative = (operation & FUTEX_CMD_MASK) == FUTEX_WAIT;
  if (is_relative) return Nanoseconds(limit) >= kLongLimitNs;
  const bool is_real_time = (operation & FUTEX_CLOCK_REALTIME) != 0;
  const int64_t until_ns = Nanoseconds(limit);
  int64_t& long_until_ns = past_[thread].long_until_ns;
  if (until_ns - NowNs(is_real_time ? CLOCK_REALTIME : CLOCK_MONOTONIC) >= kLongLimitNs) {
    long_until_ns = until_ns;
  }
  return long_until_ns == until_ns;
}

// At those that slept at the last look, or at all others. False if one of them runs or has ended.
bool ThreadWatch::LookAtAll(bool asleep, bool* is_as_base) {
  for (size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    if (thread.was_asleep != asleep) continue;
    if (!Look(&thread)) {
      num_threads_ = -1;
      return false;
    }
    if (thread.state == State::kRuns) {
      SetBlocker(thread);
      thread.was_asleep = true;  // by the next look it may be
      std::swap(thread, threads_[0]);
      first_ran_ = true;
      Restart();
      return false;
    }
    *is_as_base &= thread.state == State::kWaits ? thread.runs == thread.base_runs
                                                 : asleep && thread.base_runs == kAsleep;
  }
  return true;
}

bool ThreadWatch::IsQuiescent() {
  if (!ListThreads()) return false;
  first_ran_ = first_ran_ && IsBlocked(threads_[0]) == false && !Polls(threads_[0]);
  if (first_ran_) return false;
  const bool confirms = base_.is_known;
  bool is_as_base = true;
  if (!LookAtAll(/*asleep=*/confirms, &is_as_base)) return false;
  if (!LookAtAll(/*asleep=*/!confirms, &is_as_base)) return false;
  for (Thread& thread : threads_) thread.was_asleep = thread.is_asleep();
  const int64_t now_ns = NowNs(CLOCK_MONOTONIC);
  if (confirms && !is_as_base) {
    Restart();
    return false;
  }
  if (!confirms) {
    base_ = {true, now_ns};
    for (Thread& thread : threads_) {
      thread.base_runs = thread.state == State::kWaits ? thread.runs : kAsleep;
      thread.base_sleeps = thread.sleeps;
    }
    return false;
  }
  const int64_t waited_ns = now_ns - base_.real_ns;
  for (const Thread& thread : threads_) {
    if (thread.state == State::kWaits) continue;
    if (thread.sleeps > thread.base_sleeps) {
      NoteVainSleep(thread, waited_ns);
    } else if (MustAwait(thread, waited_ns)) {
      SetBlocker(thread);
      return false;
    }
  }
  return true;
}

bool ThreadWatch::MustAwait(const Thread& thread, int64_t waited_ns) {
  Past& past = past_[thread.id];
  bool has_touched = thread.id == getpid(), acts = false;
  {
    Touches& all = AllTouches();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (const auto found = all.by_thread.find(thread.id); found != all.by_thread.end()) {
      has_touched = true;
      acts = found->second.kernels > 0 || found->second.polls;
      if (const int64_t touches = found->second.number; touches != past.touches) {
        past.touches = touches;
        past.vain_sleeps = 0;
        past.is_ignored = false;
      }
    }
  }
  if (acts) return true;
  if (past.is_ignored) return false;
  const std::pair<int64_t, int64_t> call{thread.call, thread.argument};
  const bool is_outside = thread.state == State::kOutside;
  if (has_touched) {
    // What comes back to wait outside once more is taken for a loop of events.
    if (past.long_call == call && (is_outside || past.long_sleep == thread.sleeps)) return false;
    if (waited_ns < kLongestNs) return true;
    if (!std::exchange(past.is_told, true)) Tell(thread, "for long");
  } else {
    if (is_outside || past.long_call == call) return false;
    if (waited_ns < kLongNs) return true;
  }
  past.long_call = call;
  past.long_sleep = thread.sleeps;
  return false;
}

void ThreadWatch::NoteVainSleep(const Thread& thread, int64_t waited_ns) {
  Past& past = past_[thread.id];
  // One sleep took all that time; on busy processors short ones may, with what is between them.
  const bool is_long = waited_ns >= kLongNs && thread.sleeps == thread.base_sleeps + 1;
  if (!is_long || Polls(thread) || past.noted_ns == base_.real_ns || !MustAwait(thread, 0)) return;
  past.noted_ns = base_.real_ns;
  if (++past.vain_sleeps < kVainSleeps) return;
  past.is_ignored = true;
  Tell(thread, "again and again, with nothing done");
}

// One line for a thread that the clock goes on without.
void ThreadWatch::Tell(const Thread& thread, const char* how) {
  SetBlocker(thread);
  fprintf(
      stderr,
      "hplacer: emulated clock: %s %s: the clock goes on without it. What it does after that is "
      "late in virtual time.\n",
      Blocker().c_str(), how);
}

void ThreadWatch::SetBlocker(const Thread& thread) {
  const bool runs = thread.state == State::kRuns;
  blocker_ = std::to_string(thread.id) + (runs ? " runs" : " ");
  if (!runs) blocker_ += NameOfCall(thread.call);
}

std::string ThreadWatch::Blocker() const {
  if (blocker_.empty()) return "threads come and go";
  const int id = atoi(blocker_.c_str());
  std::string name = "?";
  const std::string path = "/proc/self/task/" + std::to_string(id) + "/comm";
  if (FILE* file = fopen(path.c_str(), "r")) {
    char text[64];
    if (fgets(text, sizeof text, file) != nullptr) name.assign(text, strcspn(text, "\n"));
    fclose(file);
  }
  const size_t space = blocker_.find(' ');
  return "thread " + blocker_.substr(0, space) + " (" + name + ")" + blocker_.substr(space);
}

}  // namespace hplacer::emulator
