// Problem files, format `hplacer-problem/2`, described in docs/reference/problem-file.md. Version 1
// is read too.
//
// Both directions stream: reading keeps the arrays of the problem and one value in memory, writing
// one op. Reading checks what concerns single fields, and the keys; `Problem::Build` what relates
// them. Decompression and files are the caller's.
//
// Decisions where the format leaves room: null is allowed in `output_alias` only; `slots` and
// indices end at 2^31 - 1; a list that exceeds what the engine can index is refused as it grows.

#ifndef HPLACER_PYTHON_ENGINE_PROBLEM_FILE_H_
#define HPLACER_PYTHON_ENGINE_PROBLEM_FILE_H_

#include <istream>
#include <ostream>

#include "engine/problem/problem.h"

namespace hplacer {

// Throws ProblemError, with the path of the faulty field, and whatever `input` throws.
Problem ReadProblem(std::istream* input);

// Writes the canonical document: defaults left out, edges sorted and distinct. Equal problems give
// equal bytes, and reading them gives an equal problem.
void WriteProblem(const Problem& problem, std::ostream* output);

}  // namespace hplacer

#endif  // HPLACER_PYTHON_ENGINE_PROBLEM_FILE_H_
