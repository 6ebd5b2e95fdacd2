// The checks of a ProblemSpec that need no index: sizes, ranges, signs and distinct names.
//
// Called by Problem::Build before anything is indexed; throws ProblemError with the field's path.

#ifndef HPLACER_ENGINE_PROBLEM_CHECK_H_
#define HPLACER_ENGINE_PROBLEM_CHECK_H_

#include "engine/problem.h"

namespace hplacer {

void CheckSpec(const ProblemSpec& spec);

// "ops[17].cost_ns": the path of a field of an element of a list.
std::string FieldPath(const char* list, int64_t index, const char* field = "");

[[noreturn]] void Fail(const std::string& path, const std::string& message);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_CHECK_H_
