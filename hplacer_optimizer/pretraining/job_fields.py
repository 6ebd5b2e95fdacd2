"""The fields of jobs, declared once, here: a list has them by name, the command line as options.

Where a field may have several values (graphs, machines, planners, seeds), there is a job for each
combination, and the command line's option is singular and has one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.measuring import Effort
from hplacer_optimizer.measuring.planning import Measuring
from hplacer_optimizer.measuring.target import session_target
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.planners.learning import PRESETS
from hplacer_optimizer.plans.making import Search
from hplacer_optimizer.pretraining.jobs import GraphSpec, Job
from hplacer_optimizer.support.document import Field
from hplacer_optimizer.support.quantities import INT64_MAX, parse_duration

DEFAULT_BUDGET_S = 600.0
DEFAULT_PLANNER = "auto"


# ---- readers: the value of a list's field; they raise DocumentError ----


def _items(field: Field) -> list[Field]:
    """A list, or a single value in its place."""
    items = [field] if isinstance(field.value, str) else field.sequence()
    if not items:
        raise field.error("the list is empty")
    return items


def _texts(field: Field) -> list[str]:
    return [item.text() for item in _items(field)]


def _count(field: Field) -> int:
    return field.whole_number(1, 10**15)


def _seeds(field: Field) -> list[int]:
    return [item.whole_number(0, INT64_MAX) for item in _items(field)]


def _planners(field: Field) -> list[str]:
    for item in _items(field):
        try:
            get_planner(item.text())
        except OptionError as error:
            raise item.error(str(error)) from None
    return _texts(field)


def _preset(field: Field) -> str:
    if field.value not in PRESETS:
        raise field.error(f"expected one of {', '.join(PRESETS)}")
    return field.text()


def _reward(field: Field) -> str:
    if field.value not in ("simulate", "measure"):
        raise field.error(f"expected simulate or measure, found {field.value!r}")
    return field.text()


def _clusters(field: Field) -> list[list[str]]:
    return [[address.strip() for address in text.split(",")] for text in _texts(field)]


def _duration(field: Field) -> float:
    try:
        return parse_duration(field.text())
    except ValueError as error:
        raise field.error(str(error)) from None


def _shapes(field: Field) -> list[tuple[str, list[int]]]:
    return [
        (name, [size.whole_number(0, 10**15) for size in sizes.sequence()])
        for name, sizes in field.mapping().items()
    ]


# ---- the fields ----


def _field(read: Callable[[Field], Any], default: object = None, *, several: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"read": read, "several": several})


@dataclass(frozen=True, kw_only=True)
class JobFields:
    """What jobs are made of: graphs, or a script to capture, and how their plans are looked for."""

    graphs: Sequence[str] = _field(_texts, (), several=True)  # files
    capture: Sequence[str] = _field(_texts, ())  # a script and its arguments
    machines: Sequence[str] = _field(_texts, (), several=True)  # (): this machine
    planners: Sequence[str] = _field(_planners, (DEFAULT_PLANNER,), several=True)
    seeds: Sequence[int] = _field(_seeds, (0,), several=True)
    budget: float | None = _field(_duration)  # seconds
    steps: int | None = _field(_count)
    patience: int | None = _field(_count)
    preset: str = _field(_preset, Search.preset)  # of the planners that learn
    reward: str = _field(_reward, "simulate")  # or "measure"
    host_offload: bool = _field(Field.boolean, Search.host_offload)
    measure_on: Sequence[Sequence[str]] = _field(_clusters, ())
    measure_steps: int | None = _field(_count)
    measure_limit: float | None = _field(_duration)  # seconds
    targets: Sequence[str] = _field(_texts, ())
    signature: str | None = _field(Field.text)
    batch_size: int | None = _field(_count)
    loop_trip_count: int | None = _field(_count)
    shapes: Sequence[tuple[str, Sequence[int]]] = _field(_shapes, ())
    cost_table: str | None = _field(Field.text)
    soft_placement: bool | None = _field(Field.boolean)
    capture_timeout: float = _field(_duration, GraphSpec.capture_timeout_s)  # seconds
    in_place: bool = _field(Field.boolean, GraphSpec.in_place)

    def jobs(self) -> Iterator[Job]:
        """The product of graphs, machines, planners and seeds, in this order.

        Raises OptionError for an unknown planner, for a wrong address, or where nothing is measured
        and yet it is said how.
        """
        graph = GraphSpec(
            script=tuple(self.capture),
            targets=tuple(self.targets),
            signature=self.signature,
            batch_size=self.batch_size,
            loop_trip_count=self.loop_trip_count,
            shapes=tuple((name, tuple(sizes)) for name, sizes in self.shapes),
            allow_soft_placement=self.soft_placement,
            capture_timeout_s=self.capture_timeout,
            in_place=self.in_place,
            keep_graph=self.reward == "measure",
        )
        budget, measuring = self._budget(), self._measuring()
        for path, machine, planner, seed in itertools.product(
            self.graphs or ("",), self.machines or (None,), self.planners, self.seeds
        ):
            yield Job(
                graph=replace(graph, path=path, machine=machine),
                search=Search(
                    planner=planner,
                    seed=seed,
                    budget=budget,
                    cost_table=self.cost_table,
                    preset=self.preset if get_planner(planner).learns else Search.preset,
                    host_offload=self.host_offload,
                    measuring=measuring,
                ),
            )

    def _budget(self) -> Budget:
        """The limits given; without seconds and steps, ten minutes."""
        unlimited = self.budget is None and self.steps is None
        seconds = DEFAULT_BUDGET_S if unlimited else self.budget
        return Budget(seconds=seconds, steps=self.steps, patience=self.patience)

    def _measuring(self) -> Measuring | None:
        limits = {"steps": self.measure_steps, "time_limit_s": self.measure_limit}
        given: Any = {name: limit for name, limit in limits.items() if limit is not None}
        if self.reward != "measure":
            if self.measure_on or given:
                raise OptionError(
                    'measure_on, measure_steps, measure_limit: need the reward "measure"'
                )
            return None
        for cluster in self.measure_on:
            session_target(cluster)
        return Measuring(
            on=tuple(tuple(cluster) for cluster in self.measure_on),
            effort=Effort(**given),
        )


# How each field of a list is read, by name.
READERS: dict[str, Callable[[Field], Any]] = {
    field.name: field.metadata["read"] for field in dataclasses.fields(JobFields)
}
