"""Plans which device runs each operation of a TensorFlow graph.

    import hplacer_optimizer as hp
    hp.enable()

That is the same as `tf.config.optimizer.set_experimental_options({"hierarchical_placer": True})`:
importing this package before or after TensorFlow makes the option known. TensorFlow itself is never
imported from here, and the names below are loaded on first use.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import wrapt

from hplacer_optimizer.log import warn_once
from hplacer_optimizer.support.installed import own_version

if TYPE_CHECKING:
    from hplacer_optimizer._engine import LowerBound, Problem, StepTrace, lower_bound
    from hplacer_optimizer.capture.loading import load_problem
    from hplacer_optimizer.costs.table import CostTable
    from hplacer_optimizer.errors import (
        ClusterError,
        CostTableError,
        GraphError,
        HPlacerError,
        InfeasibleError,
        MachineError,
        NativeBuildError,
        OptionError,
        PlanError,
        PlannerUnavailableError,
        ProblemError,
        StoreError,
    )
    from hplacer_optimizer.inspection.advice.advising import Advice, advise
    from hplacer_optimizer.machines import Machine, load_machine, save_machine
    from hplacer_optimizer.measuring import Measurement
    from hplacer_optimizer.measuring.clusters import LocalCluster, local_cluster
    from hplacer_optimizer.measuring.graph_measurement import measure
    from hplacer_optimizer.options import Options
    from hplacer_optimizer.planners import Budget, PlannerResult, Progress
    from hplacer_optimizer.planners.learning import Learned, learn
    from hplacer_optimizer.plans.making import plan
    from hplacer_optimizer.plans.plan import Plan, load_plan
    from hplacer_optimizer.plans.store import PlanStore
    from hplacer_optimizer.plugin.disabling import disabled
    from hplacer_optimizer.plugin.history import GraphRecord, StepCheck, step_checks
    from hplacer_optimizer.plugin.service import history
    from hplacer_optimizer.plugin.switch import enable, session_config
    from hplacer_optimizer.plugin.variables import ModelPlan, migrate, plan_model, variable_scope
    from hplacer_optimizer.problem.problem_file import save_problem
    from hplacer_optimizer.problem.simulator import simulate, simulate_batch

    __version__: str

__all__ = [
    "Advice",
    "Budget",
    "ClusterError",
    "CostTable",
    "CostTableError",
    "GraphError",
    "GraphRecord",
    "HPlacerError",
    "InfeasibleError",
    "Learned",
    "LocalCluster",
    "LowerBound",
    "Machine",
    "MachineError",
    "Measurement",
    "ModelPlan",
    "NativeBuildError",
    "OptionError",
    "Options",
    "Plan",
    "PlanError",
    "PlanStore",
    "PlannerResult",
    "PlannerUnavailableError",
    "Problem",
    "ProblemError",
    "Progress",
    "StepCheck",
    "StepTrace",
    "StoreError",
    "__version__",
    "advise",
    "disabled",
    "enable",
    "history",
    "learn",
    "load_machine",
    "load_plan",
    "load_problem",
    "local_cluster",
    "lower_bound",
    "measure",
    "migrate",
    "plan",
    "plan_model",
    "save_machine",
    "save_problem",
    "session_config",
    "simulate",
    "simulate_batch",
    "step_checks",
    "variable_scope",
]

_MODULES = {
    "Advice": "inspection.advice.advising",
    "Budget": "planners",
    "CostTable": "costs.table",
    "GraphRecord": "plugin.history",
    "Learned": "planners.learning",
    "LocalCluster": "measuring.clusters",
    "LowerBound": "_engine",
    "Machine": "machines",
    "Measurement": "measuring",
    "ModelPlan": "plugin.variables",
    "Options": "options",
    "Plan": "plans.plan",
    "PlanStore": "plans.store",
    "PlannerResult": "planners",
    "Problem": "_engine",
    "Progress": "planners",
    "StepCheck": "plugin.history",
    "StepTrace": "_engine",
    "advise": "inspection.advice.advising",
    "disabled": "plugin.disabling",
    "enable": "plugin.switch",
    "history": "plugin.service",
    "learn": "planners.learning",
    "load_machine": "machines",
    "load_plan": "plans.plan",
    "load_problem": "capture.loading",
    "local_cluster": "measuring.clusters",
    "lower_bound": "_engine",
    "measure": "measuring.graph_measurement",
    "migrate": "plugin.variables",
    "plan": "plans.making",
    "plan_model": "plugin.variables",
    "save_machine": "machines",
    "save_problem": "problem.problem_file",
    "session_config": "plugin.switch",
    "simulate": "problem.simulator",
    "simulate_batch": "problem.simulator",
    "step_checks": "plugin.history",
    "variable_scope": "plugin.variables",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = own_version()
    elif name in __all__:
        module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
        value = getattr(module, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# ---- TensorFlow and Keras, imported before or later ----

_HOOKS = {"tensorflow": "on_tensorflow", "keras": "on_keras", "tf_keras": "on_keras"}


def _call_hook(library: ModuleType) -> None:
    switch = importlib.import_module(f"{__name__}.plugin.switch")
    getattr(switch, _HOOKS[library.__name__])(library)


def _call_hook_later(library: ModuleType) -> None:
    name = library.__name__
    try:
        _call_hook(library)
    except Exception as error:  # never break somebody else's import
        warn_once(f"import {name}", f"not switched on for {name}: {error}")


for _name in _HOOKS:
    wrapt.register_post_import_hook(_call_hook if _name in sys.modules else _call_hook_later, _name)

if os.environ.get("HPLACER_EMULATION"):  # by who started this process
    importlib.import_module(f"{__name__}.emulation.keras").keep_to_known_kernels()
