// The bindings of what learns.

#ifndef HPLACER_PYTHON_ENGINE_LEARNING_H_
#define HPLACER_PYTHON_ENGINE_LEARNING_H_

#include <pybind11/pybind11.h>

namespace hplacer {

void RegisterLearning(pybind11::module_* module);

}  // namespace hplacer

#endif  // HPLACER_PYTHON_ENGINE_LEARNING_H_
