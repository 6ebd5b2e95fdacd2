// The process's one T, also after a fork.
#ifndef HPLACER_TF_PER_PROCESS_H_
#define HPLACER_TF_PER_PROCESS_H_

#include <pthread.h>

#include <atomic>

namespace hplacer {

// Never destroyed, since TensorFlow's threads outlive static objects. A forked child gets a fresh
// T: a copied lock may be held, and a copied condition variable has waiters, by threads that the
// child does not have. The parent's T is left as it is, never touched again.
template <typename T>
class PerProcess {
 public:
  static T& Get() { return *current_.load(std::memory_order_acquire); }

 private:
  static T* MakeFirst() {
    pthread_atfork(nullptr, nullptr, [] { current_.store(new T, std::memory_order_release); });
    return new T;
  }

  inline static std::atomic<T*> current_{MakeFirst()};  // while the module is loaded
};

}  // namespace hplacer

#endif  // HPLACER_TF_PER_PROCESS_H_
