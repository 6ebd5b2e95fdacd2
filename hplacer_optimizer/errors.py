"""The errors of this package; each message names the faulty op, file or field, and the fix."""

from __future__ import annotations


class HPlacerError(Exception):
    """Base of all errors of this package; the message names what is wrong, and the fix."""


class DocumentError(HPlacerError, ValueError):
    """YAML or a quantity is malformed; readers turn this into the error of what they read."""


class ProblemError(HPlacerError, ValueError):
    """A problem or a placement is malformed.

    The message starts with the path of the faulty field, such as `ops[17].cost_ns`, and names the
    file. Correct that field, or export the problem anew.
    """


class GraphError(HPlacerError, ValueError):
    """A graph cannot be read, captured or run outside of its program.

    The message names the file or function, what is wrong in it, and TensorFlow's own words.
    """


class MachineError(HPlacerError, ValueError):
    """A machine description is malformed, or a device of it is not there.

    The message has the path of the faulty field, such as `devices[1].kind`, and the file; or it
    lists the devices that there are. Correct the file, or name another machine.
    """


class ClusterError(HPlacerError):
    """A TensorFlow cluster cannot be started, or has lost a worker.

    The message names the worker. Start the cluster again.
    """


class CostTableError(HPlacerError, ValueError):
    """A table of measured costs is malformed.

    The message has the path of the faulty field, such as `costs[3].time_ns`, and the file. Correct
    that entry, or measure again with `hplacer calibrate`.
    """


class InfeasibleError(HPlacerError):
    """No placement can satisfy the constraints, or no measured one ran.

    The message names the op and the devices that it is limited to. Allow it another device, or plan
    for a machine that has a kernel for it.
    """


class OptionError(HPlacerError, ValueError):
    """An option is unknown, or its value is wrong.

    The message names the option and what is valid. Nothing has been switched on or planned.
    """


class PlannerUnavailableError(HPlacerError):
    """A planner needs a package, a program or a device that is not there.

    The message names it, and how to get it. Install it, or choose another planner.
    """


class PlanError(HPlacerError, ValueError):
    """A plan or its file is damaged, of another format, or does not fit the graph or the devices.

    The message names the file and the remedy: mostly to delete it, since the next run plans again.
    """


class StoreError(HPlacerError, OSError):
    """The plan store cannot be read or written, or does not have the plan that was asked for.

    The message names the path and the fix. Training goes on without the store.
    """


class NativeBuildError(HPlacerError, ImportError):
    """The native part is missing, or was built for another TensorFlow.

    Raised where the optimizer is switched on. The message has the command that builds it anew.
    """


class BenchError(HPlacerError):
    """A benchmark cannot run as asked; the message says what to change."""


class MeasuringError(HPlacerError):
    """Steps could not be measured; the message names the placement or the script, and the cause."""


class EmulationError(HPlacerError):
    """Devices cannot be emulated, or the virtual clock has stopped; the message has the fix."""


class CheckpointError(HPlacerError, ValueError):
    """A learned planner's checkpoint is damaged, or of another graph, machine, setting or seed."""


class JobListError(HPlacerError, ValueError):
    """A list of pretraining jobs is malformed; the message has the path of the faulty field."""
