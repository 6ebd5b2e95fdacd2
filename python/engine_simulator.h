// The bindings of the simulator and of what it returns.

#ifndef HPLACER_PYTHON_ENGINE_SIMULATOR_H_
#define HPLACER_PYTHON_ENGINE_SIMULATOR_H_

#include <pybind11/pybind11.h>

namespace hplacer {

void RegisterStepTrace(pybind11::module_* module);

void RegisterSimulator(pybind11::module_* module);

}  // namespace hplacer

#endif  // HPLACER_PYTHON_ENGINE_SIMULATOR_H_
