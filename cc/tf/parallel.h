// A parallel loop for the pass's hot path; runs inline where threads would cost more than they do.
#ifndef HPLACER_TF_PARALLEL_H_
#define HPLACER_TF_PARALLEL_H_

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace hplacer {

// Calls body(begin, end) on disjoint ranges that cover [0, n). `body` must not throw.
template <typename Body>
void ParallelFor(size_t n, const Body& body) {
  constexpr size_t kMinPerThread = 4096;
  constexpr size_t kMaxThreads = 4;
  const size_t cores = std::max<size_t>(std::thread::hardware_concurrency(), 1);
  const size_t parts = std::clamp<size_t>(n / kMinPerThread, 1, std::min(cores, kMaxThreads));
  std::vector<std::thread> threads;
  size_t begin = 0;
  for (size_t part = 1; part < parts; ++part) {
    const size_t end = n * part / parts;
    try {
      threads.emplace_back([&body, begin, end] { body(begin, end); });
    } catch (const std::system_error&) {
      break;  // no more threads here: the rest runs inline
    }
    begin = end;
  }
  body(begin, n);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace hplacer

#endif  // HPLACER_TF_PARALLEL_H_
