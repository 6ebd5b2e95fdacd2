"""Plans a training step together with the variables that it is going to use.

    model_fn, step_fn --symbolic, tracing--> ConcreteFunction
    ConcreteFunction --load_graph, variables free--> Problem --planner--> devices of the variables
    ConcreteFunction --load_graph, variables there--> the fingerprint that training will look up

The two captures are of one graph, so the placement of the first is one of the second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hplacer_optimizer.capture.captured import CapturedGraph
from hplacer_optimizer.capture.loading import LoadedGraph, load_graph
from hplacer_optimizer.capture.runnable_step import Argument
from hplacer_optimizer.capture.sources import GraphSource, describe
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.machines import Machine, full_device_name
from hplacer_optimizer.options import Options
from hplacer_optimizer.planners import Budget
from hplacer_optimizer.plans.making import Search, make_plan, placed_nodes
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plugin import switch
from hplacer_optimizer.plugin.variables.model_plan import ModelPlan, PlannedVariable
from hplacer_optimizer.plugin.variables.symbolic import SymbolicVariable, building
from hplacer_optimizer.plugin.variables.tracing import trace_step
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.problem_file import Problem
from hplacer_optimizer.support.keywords import checks_keywords


@checks_keywords
def plan_model(
    model_fn: Callable[[], Any],
    step_fn: Callable[..., Any] | None = None,
    specs: Any = (),
    *,
    machine: Machine | str | os.PathLike[str] | None = None,
    planner: str | None = None,
    budget_s: float | None = None,
    seed: int | None = None,
    batch_size: int | None = None,
    loop_trip_count: int | None = None,
    cost_table: str | None = None,
) -> ModelPlan:
    """Plans a model's training step and its variables, none of which is allocated.

    For arguments that are None, the options that are switched on count, else the defaults.

    Args:
        model_fn: builds the model, as `variable_scope` will see it built; whatever it returns.
        step_fn: the training step, called with that and a batch, a `tf.function` or to become one;
            None: `model_fn` returns a compiled Keras model that `fit` trains.
        specs: of a batch: the step's further arguments as `tf.TensorSpec`s or nests of them; for
            `fit` also the `tf.data.Dataset`.
        machine: a Machine, a shipped one's name or a YAML file; None: this machine.
        planner: by name, or one's own as package.module:function.
        budget_s: seconds that it may take.
        seed: of its random choices.
        batch_size: for unknown batch dimensions.
        loop_trip_count: for while loops without a constant bound.
        cost_table: file of measured op costs.

    Raises:
        GraphError: there is no such step, or it cannot be captured.
        InfeasibleError: an op has no device at all.
        MachineError, OptionError, CostTableError: an argument is wrong.

    Example:
        >>> import hplacer_optimizer as hp
        >>> import tensorflow as tf
        >>> def make_weights():
        ...     return tf.Variable(tf.random.normal([64, 8]), name="weights")
        >>> def step(weights, batch):
        ...     weights.assign_sub(0.1 * tf.transpose(batch) @ (batch @ weights))
        >>> plan = hp.plan_model(make_weights, step, [tf.TensorSpec([16, 64])], planner="etf")
        >>> list(plan.devices)
        ['weights']
    """
    options = switch.options_in_force() or Options()
    if options.devices:
        raise OptionError("devices: plan_model plans all devices of its `machine`; leave it out")
    search = Search(
        planner=planner or options.planner,
        seed=options.seed if seed is None else seed,
        budget=Budget(seconds=budget_s or options.budget_s),
        cost_table=cost_table or options.cost_table,
        host_offload=options.host_offload,
    )
    with building() as build:
        built = model_fn()
        num_built = len(build.variables)
        concrete = trace_step(built, step_fn, specs, build)
        late = build.variables[num_built:]  # created by the first step
        of_metrics = {id(metric.value) for metric in getattr(built, "metrics_variables", ())}
        metrics = {symbolic.key for symbolic in late if id(symbolic.variable) in of_metrics}
        slots = {symbolic.key for symbolic in late if symbolic.beside is not None}
        step = _TracedStep.of(
            concrete, build.variables, default=metrics, is_elsewhere=machine is not None
        )

    def load(source: GraphSource, machine: Any, *, logs: bool) -> LoadedGraph:
        return load_graph(
            source,
            machine=machine,
            batch_size=batch_size or options.batch_size,
            loop_trip_count=loop_trip_count or options.loop_trip_count,
            cost_table=search.cost_table,
            logs=logs,
        )

    free = load(step.with_devices({}), machine, logs=True)
    plan, trace = make_plan(_colocated(free.captured, step), free.machine, search)
    if not plan.feasible:
        LOGGER.warning(
            "the plan for %s may not fit: %s", plan.label, "; ".join(trace.infeasible_because)
        )
    devices = _devices(plan, step)
    planned = ModelPlan(
        variables=tuple(
            _planned(made, devices.get(made.key), is_deferred=made.key in slots | metrics)
            for made in build.variables
        ),
        step=_bound(plan, load(step.with_devices(devices), free.machine, logs=False)),
    )
    LOGGER.info("plan %s", planned.summary_line())
    return planned


@dataclass(frozen=True, kw_only=True)
class _TracedStep:
    """The traced step, and which of its arguments are variables that do not exist yet."""

    source: GraphSource
    names: tuple[str, ...]  # of the arguments
    variables: dict[int, SymbolicVariable]  # by argument
    by_key: dict[str, SymbolicVariable]
    default: set[str]  # keys of those that stay where TensorFlow creates them

    @classmethod
    def of(
        cls,
        concrete: Any,
        made: Sequence[SymbolicVariable],
        *,
        default: set[str],
        is_elsewhere: bool,
    ) -> _TracedStep:
        of_handle = {id(symbolic.variable.handle): symbolic for symbolic in made}
        captured = list(concrete.captured_inputs)
        first = len(concrete.inputs) - len(captured)
        return cls(
            source=describe(concrete, is_elsewhere=is_elsewhere),
            names=tuple(arg.name for arg in concrete.function_def.signature.input_arg),
            variables={
                first + index: of_handle[id(handle)]
                for index, handle in enumerate(captured)
                if id(handle) in of_handle
            },
            by_key={symbolic.key: symbolic for symbolic in made},
            default=default,
        )

    def owner(self, symbolic: SymbolicVariable) -> SymbolicVariable:
        """The variable that this one goes along with: itself, if it is no slot."""
        while symbolic.beside is not None:
            symbolic = self.by_key[symbolic.beside]
        return symbolic

    def with_devices(self, devices: dict[str, str]) -> GraphSource:
        """The step with variables there; without an entry: on the user's device, else anywhere."""
        arguments = list(self.source.arguments)
        for index, symbolic in self.variables.items():
            pin = self.owner(symbolic).requested_device
            device = devices.get(symbolic.key, full_device_name(pin) if pin else "")
            arguments[index] = Argument(
                device=device,
                variable=arguments[index].variable,
                is_free=not device and symbolic.key not in self.default,
            )
        return replace(self.source, arguments=tuple(arguments))


def _colocated(captured: CapturedGraph, step: _TracedStep) -> CapturedGraph:
    """With slots in the units of their variables."""
    op_of_name = {name: op for op, name in enumerate(captured.arrays["op_names"])}
    op = {made.key: op_of_name[step.names[index]] for index, made in step.variables.items()}
    units = captured.units.copy()
    for symbolic in step.variables.values():
        owner = step.owner(symbolic)
        if owner is not symbolic and owner.key in op:
            units[units == units[op[symbolic.key]]] = units[op[owner.key]]
    distinct, dense = np.unique(units, return_inverse=True)
    return replace(captured, units=dense.astype(np.int32), num_units=len(distinct))


def _devices(plan: Plan, step: _TracedStep) -> dict[str, str]:
    """By key, of the variables that the step uses."""
    problem, placement = _placed(plan)
    op_of_name = {name: op for op, name in enumerate(problem.op_names)}
    return {
        symbolic.key: plan.device_names[placement[op_of_name[step.names[index]]]]
        for index, symbolic in step.variables.items()
    }


def _bound(plan: Plan, loaded: LoadedGraph) -> Plan:
    """The plan for the graph that training will bring: `loaded`, with the variables in place."""
    planned, placement_of_plan = _placed(plan)
    device_of_name = dict(zip(planned.op_names, placement_of_plan, strict=True))
    problem, captured = loaded.problem, loaded.captured
    placement = np.array([device_of_name[name] for name in problem.op_names], np.int32)
    check_constraints(problem, placement)
    return replace(
        plan,
        fingerprint=captured.fingerprint,
        fingerprint_parts=dict(captured.fingerprint_parts),
        num_units=problem.num_units,
        **placed_nodes(captured, problem, placement),
    )


def _placed(plan: Plan) -> tuple[Problem, Any]:
    problem, placement = plan.problem(), plan.placement
    assert problem is not None  # make_plan packs it
    assert placement is not None
    return problem, placement


def _planned(
    symbolic: SymbolicVariable, device: str | None, *, is_deferred: bool
) -> PlannedVariable:
    shape = symbolic.variable.shape
    return PlannedVariable(
        key=symbolic.key,
        shape=None if shape.rank is None else tuple(shape.as_list()),
        dtype=symbolic.variable.dtype.name,
        device=device,
        beside=symbolic.beside,
        is_deferred=is_deferred,
    )
