"""Creates variables on their planned devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hplacer_optimizer.errors import PlanError, StoreError
from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.options import Options
from hplacer_optimizer.plans.guard import Here, decide
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plugin import switch
from hplacer_optimizer.plugin.disabling import is_disabled
from hplacer_optimizer.plugin.variables.model_plan import (
    ModelPlan,
    PlannedVariable,
    check_devices,
    listed,
)
from hplacer_optimizer.plugin.variables.names import KeyMaker, name_in_creation
from hplacer_optimizer.plugin.variables.slots import follow
from hplacer_optimizer.plugin.variables.symbolic import requested_device


@contextlib.contextmanager
def variable_scope(plan: ModelPlan) -> Iterator[None]:
    """Within this block, each variable of the model is created on its planned device.

    The step's plan goes into the plan store that the switch names, so that training finds it: set
    the switch before. A variable that asks for a device itself, by `tf.device` or as an optimizer's
    slot, gets that one, inside of the block and outside. If model and plan differ, one warning
    names the variables, and TensorFlow places them. Nothing moves, and the log says why, if the
    plan would not take effect in training (option min_gain, HPLACER_DISABLE).

    Args:
        plan: of `plan_model`, for a model of the same names and shapes.

    Raises:
        PlanError: before anything is created, if this process lacks a device of the plan, or
            inside of a distribution strategy.

    Example, after that of `plan_model`:
        >>> with hp.variable_scope(plan):
        ...     weights = make_weights()
        >>> weights.device == plan.devices["weights"]
        True
    """
    import tensorflow as tf

    if tf.distribute.has_strategy():
        raise PlanError(
            "variable_scope: a tf.distribute strategy places variables itself; leave its scope"
        )
    check_devices(plan)
    options = switch.options_in_force() or Options()
    if is_left_alone(plan, decide(plan.step, Here.now(min_gain=options.min_gain)).why):
        yield
        return
    publish(plan)
    creation = _Creation(plan)
    with tf.variable_creator_scope(creation.create):
        yield
    creation.warn()


def is_left_alone(plan: ModelPlan, reason: str = "") -> bool:
    """Whether no variable moves, for this reason or as the optimizer is disabled; the log says."""
    if is_disabled():
        reason = "the optimizer is disabled"
    if reason:
        LOGGER.info("the variables of %s are left alone: %s", plan.step.label, reason)
    return bool(reason)


def publish(plan: ModelPlan) -> None:
    """Puts the step's plan where the pass will look for it, unless a better one is there."""
    options = switch.options_in_force()
    if options is None:
        return  # nobody will look
    store = PlanStore.from_options(options)
    try:
        store.put(plan.step)
    except StoreError as error:
        LOGGER.warning("the plan of the step is not stored, so training plans anew: %s", error)


class _Creation:
    """What was created in one scope."""

    def __init__(self, plan: ModelPlan) -> None:
        self._planned: dict[str, PlannedVariable] = {v.key: v for v in plan.variables}
        self._label = plan.step.label
        self._keys = KeyMaker()
        self._created: set[str] = set()
        self._unknown: list[str] = []
        self._different: list[str] = []

    def create(self, next_creator: Any, **arguments: Any) -> Any:
        """A variable creator, see `tf.variable_creator_scope`."""
        import tensorflow as tf

        key = self._keys(name_in_creation(arguments.get("name"), arguments.get("initial_value")))
        planned = self._planned.get(key)
        self._created.add(key)
        if planned is None:
            self._unknown.append(key)
            return next_creator(**arguments)
        if planned.device is None or requested_device():
            variable = next_creator(**arguments)
        else:
            with tf.device(planned.device):
                variable = next_creator(**arguments)
        follow(variable)
        if difference := planned.difference(variable):
            self._different.append(f"'{key}' {difference}")
        return variable

    def warn(self) -> None:
        """Names what the plan and the program do not have in common."""
        missing = [
            key
            for key, planned in self._planned.items()
            if key not in self._created and not planned.is_deferred
        ]
        found = []
        if self._unknown:
            found.append(f"not in the plan: {listed(self._unknown)}")
        if missing:
            found.append(f"not created: {listed(missing)}")
        if self._different:
            found.append(f"not as planned: {'; '.join(self._different)}")
        if found:
            LOGGER.warning(
                "the variables do not fit the plan of %s (%s). TensorFlow places what is not in "
                "it: build what plan_model's model_fn built, under the same names, and all of it "
                "inside of variable_scope (a model without input shapes by its first step)",
                self._label,
                "; ".join(found),
            )
