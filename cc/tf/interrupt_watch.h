// Tells a waiting thread that the user wants an end.
#ifndef HPLACER_TF_INTERRUPT_WATCH_H_
#define HPLACER_TF_INTERRUPT_WATCH_H_

#include <cstdint>

namespace hplacer {

// While one lives, SIGINT and SIGTERM are counted on their way to the handler of the process.
// Python's handler only leaves a note, which Python reads once TensorFlow has returned to it, so a
// pass that waits would never learn of Ctrl-C. Signals without a handler keep their default action.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Whether a signal came since the construction.
  bool interrupted() const;

 private:
  uint64_t count_at_begin_;
};

}  // namespace hplacer

#endif  // HPLACER_TF_INTERRUPT_WATCH_H_
