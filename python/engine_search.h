// The bindings of the searches.

#ifndef HPLACER_PYTHON_ENGINE_SEARCH_H_
#define HPLACER_PYTHON_ENGINE_SEARCH_H_

#include <pybind11/pybind11.h>

namespace hplacer {

void RegisterSearches(pybind11::module_* module);

}  // namespace hplacer

#endif  // HPLACER_PYTHON_ENGINE_SEARCH_H_
