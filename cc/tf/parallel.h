// A parallel loop for the pass's hot path; runs inline where threads would cost more than they do.
#ifndef HPLACER_TF_PARALLEL_H_
#define HPLACER_TF_PARALLEL_H_

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace hplacer {

// Calls body(begin, end) on disjoint ranges that cover [0, n). What `body` throws reaches the
// caller once all ranges have ended; of several exceptions, that of the first range.
template <typename Body>
void ParallelFor(size_t n, const Body& body) {
  constexpr size_t kMinPerThread = 4096;
  constexpr size_t kMaxThreads = 4;
  const size_t cores = std::max<size_t>(std::thread::hardware_concurrency(), 1);
  const size_t parts = std::clamp<size_t>(n / kMinPerThread, 1, std::min(cores, kMaxThreads));
  std::vector<std::exception_ptr> errors(parts);
  const auto run = [&body](size_t begin, size_t end, std::exception_ptr* error) {
    try {
      body(begin, end);
    } catch (...) {
      *error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(parts);
  size_t begin = 0;
  for (size_t part = 1; part < parts; ++part) {
    const size_t end = n * part / parts;
    try {
      threads.emplace_back(run, begin, end, &errors[part - 1]);
    } catch (const std::exception&) {
      break;  // no more threads here: the rest runs inline
    }
    begin = end;
  }
  run(begin, n, &errors[parts - 1]);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace hplacer

#endif  // HPLACER_TF_PARALLEL_H_
