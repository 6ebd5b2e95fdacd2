// The emulated devices as Python sees them: `hplacer_optimizer._emulator_2_21` and so on.
//
// TensorFlow loads this file as a library of devices; imported after that, it is the same one.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "emulator/clock.h"
#include "emulator/machine.h"
#include "emulator/stream_executor.h"

namespace py = pybind11;

PYBIND11_MODULE(_emulator, m) {
  using namespace hplacer::emulator;  // NOLINT: the module's own names
  m.doc() = "Emulated devices of this process: their clock, their costs, and what ran on them.";
  m.def("now_ns", [] { return Clock::Get().now_ns(); });
  m.def("stopped", [] { return Clock::Get().stopped(); });
  m.def("synchronise", [] { (void)WaitForDevices(); }, py::call_guard<py::gil_scoped_release>());
  m.def("counts", [] {
    const Clock::Counts counts = Clock::Get().counts();
    return std::make_pair(counts.advances, counts.looks);
  });
  m.def(
      "set_cost",
      [](const std::string& key, bool on_host, bool by_type, int64_t launch_ns, int64_t run_ns) {
        Machine::Get().SetCost(on_host, by_type, key, {launch_ns, run_ns});
      },
      py::arg("key"), py::kw_only(), py::arg("on_host"), py::arg("by_type"), py::arg("launch_ns"),
      py::arg("run_ns"));
  m.def("clear_costs", [] { Machine::Get().ClearCosts(); });
  m.def("allocate_only_from", [](int64_t bytes) { Machine::Get().SetAllocateOnlyFrom(bytes); });
  m.def("trace", [](bool on) { Machine::Get().SetTracing(on); });
  m.def("take_records", [] {
    const std::vector<Record> records = Machine::Get().TakeRecords();
    py::list rows;
    for (const Record& record : records) {
      rows.append(py::make_tuple(static_cast<int>(record.kind), record.from, record.to,
                                 record.enqueued_ns, record.start_ns, record.end_ns, record.bytes,
                                 record.name, record.type));
    }
    return rows;
  });
}
