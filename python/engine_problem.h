// The bindings of Problem and of problem files.

#ifndef HPLACER_PYTHON_ENGINE_PROBLEM_H_
#define HPLACER_PYTHON_ENGINE_PROBLEM_H_

#include <pybind11/pybind11.h>

namespace hplacer {

void RegisterProblem(pybind11::module_* module);

void RegisterProblemFile(pybind11::module_* module);

}  // namespace hplacer

#endif  // HPLACER_PYTHON_ENGINE_PROBLEM_H_
