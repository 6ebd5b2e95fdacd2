// What the bindings of the engine share: arrays, and what makes a value print and copy itself.

#ifndef HPLACER_PYTHON_ENGINE_ARRAYS_H_
#define HPLACER_PYTHON_ENGINE_ARRAYS_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

namespace hplacer {

// Without forcecast: an array that would lose information is refused.
template <typename T>
using Array = pybind11::array_t<T, pybind11::array::c_style>;

template <typename T>
pybind11::array ReadOnlyView(const std::vector<T>& values, std::vector<pybind11::ssize_t> shape,
                             const pybind11::object& owner) {
  pybind11::array view(pybind11::dtype::of<T>(), std::move(shape), {}, values.data(), owner);
  view.attr("setflags")(pybind11::arg("write") = false);
  return view;
}

template <typename T>
pybind11::array_t<T> ToArray(const std::vector<T>& values) {
  return pybind11::array_t<T>(static_cast<pybind11::ssize_t>(values.size()), values.data());
}

// For a class of values that never change: each is its own copy. What `repr` and notebooks show is
// made in Python, of what the function `describe` of problem/description.py says.
template <typename T>
void AddValueMethods(pybind11::class_<T>* cls, const char* describe) {
  for (const auto& [name, form] : {std::pair("__repr__", "as_text"), {"_repr_html_", "as_html"}}) {
    cls->def(name, [describe, form = form](const pybind11::object& self) {
      const auto description = pybind11::module_::import("hplacer_optimizer.problem.description");
      const auto notebook = pybind11::module_::import("hplacer_optimizer.support.notebook");
      return notebook.attr(form)(*description.attr(describe)(self));
    });
  }
  cls->def("__copy__", [](const pybind11::object& self) { return self; });
  cls->def("__deepcopy__",
           [](const pybind11::object& self, const pybind11::dict&) { return self; });
}

}  // namespace hplacer

#endif  // HPLACER_PYTHON_ENGINE_ARRAYS_H_
