// The binding of the local search.

#ifndef HPLACER_PYTHON_ENGINE_LOCAL_SEARCH_H_
#define HPLACER_PYTHON_ENGINE_LOCAL_SEARCH_H_

#include <pybind11/pybind11.h>

namespace hplacer {

void RegisterLocalSearch(pybind11::module_* module);

}  // namespace hplacer

#endif  // HPLACER_PYTHON_ENGINE_LOCAL_SEARCH_H_
