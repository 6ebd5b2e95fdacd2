"""The errors of this package; each message names the faulty op, file or field, and the fix."""

from __future__ import annotations


class HPlacerError(Exception):
    """Base of all errors of this package."""


class DocumentError(HPlacerError, ValueError):
    """YAML or a quantity is malformed; readers turn this into the error of what they read."""


class ProblemError(HPlacerError, ValueError):
    """A problem or a placement is malformed; the message has the path of the faulty field."""


class GraphError(HPlacerError, ValueError):
    """A graph cannot be read or captured; the message names the file and what is wrong in it."""


class MachineError(HPlacerError, ValueError):
    """A machine description is malformed; the message has the path of the faulty field."""


class ClusterError(HPlacerError):
    """A TensorFlow cluster cannot be started, or has lost a worker; the message names it."""


class CostTableError(HPlacerError, ValueError):
    """A table of measured costs is malformed; the message has the path of the faulty field."""


class InfeasibleError(HPlacerError):
    """No placement can satisfy the constraints; the message names the op and the devices."""


class OptionError(HPlacerError, ValueError):
    """An option is unknown, or its value is wrong; the message names the valid ones."""


class PlannerUnavailableError(HPlacerError):
    """A planner needs a package, a program or a device that is not there; names it and the fix."""


class PlanError(HPlacerError, ValueError):
    """A plan file is unreadable, damaged, of a newer format, or does not fit the graph."""


class StoreError(HPlacerError, OSError):
    """The plan store cannot be read or written; the message names the path and the fix."""


class NativeBuildError(HPlacerError, ImportError):
    """The native part is missing or built for another TensorFlow; names the rebuilding command."""


class BenchError(HPlacerError):
    """A benchmark cannot run as asked; the message says what to change."""


class CheckpointError(HPlacerError, ValueError):
    """A learned planner's checkpoint is damaged, or of another graph, machine, setting or seed."""


class JobListError(HPlacerError, ValueError):
    """A list of pretraining jobs is malformed; the message has the path of the faulty field."""
