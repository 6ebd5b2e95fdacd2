// The checks of a ProblemSpec that need no index: sizes, ranges, signs and distinct names.
//
// Called by Problem::Build before anything is indexed; throws ProblemError with the field's path.

#ifndef HPLACER_ENGINE_PROBLEM_PROBLEM_CHECK_H_
#define HPLACER_ENGINE_PROBLEM_PROBLEM_CHECK_H_

#include "engine/problem/problem.h"

namespace hplacer {

// The engine indexes ops, tensors and (tensor, transfer) pairs with 32 bits, and a small file must
// not ask for more memory than machines have: the most entries of any array ...
inline constexpr int64_t kMaxCount = int64_t{1} << 28;
// ... and the most devices and device kinds, whose pairs get a table.
inline constexpr int64_t kMaxDevices = 4096;

void CheckSpec(const ProblemSpec& spec);

// The part of it that compares the number of ops, devices and so on with the limits above.
void CheckCounts(const ProblemSpec& spec);

// "ops[17].cost_ns": the path of a field of an element of a list.
std::string FieldPath(const char* list, int64_t index, const char* field = "");

[[noreturn]] void Fail(const std::string& path, const std::string& message);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_PROBLEM_CHECK_H_
