"""A list of jobs: YAML, format `hplacer-pretrain/1` (docs/pretraining.md), read strictly.

Each entry is a product: graphs x machines x planners x seeds. What an entry leaves out it takes
from `defaults`; paths are relative to the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hplacer_optimizer.errors import DocumentError, JobListError, OptionError
from hplacer_optimizer.machines import shipped_machines
from hplacer_optimizer.measuring import Effort
from hplacer_optimizer.measuring.planning import Measuring
from hplacer_optimizer.measuring.target import session_target
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.planners.learning import PRESETS
from hplacer_optimizer.plans.making import Search
from hplacer_optimizer.pretraining.jobs import GraphSpec, Job
from hplacer_optimizer.support.document import MAX_BYTES, Field, parse_yaml
from hplacer_optimizer.support.quantities import parse_duration

FORMAT = "hplacer-pretrain/1"
DEFAULT_BUDGET_S = 600.0
MAX_JOBS = 100_000

_INT64_MAX = 2**63 - 1


def default_budget(seconds: float | None, steps: int | None, patience: int | None) -> Budget:
    """The limits given; without seconds and steps, ten minutes."""
    if seconds is None and steps is None:
        seconds = DEFAULT_BUDGET_S
    return Budget(seconds=seconds, steps=steps, patience=patience)


def get_measuring(
    reward: str,
    on: Sequence[Sequence[str]] | None = None,
    steps: int | None = None,
    time_limit_s: float | None = None,
) -> Measuring | None:
    """How the reward "measure" is measured, with the limits given; None for "simulate".

    Raises OptionError for a wrong address, or where nothing is measured and yet something given.
    """
    if reward != "measure":
        if on or steps or time_limit_s:
            raise OptionError('measure_on, measure_steps, measure_limit: need the reward "measure"')
        return None
    for cluster in on or ():
        session_target(cluster)
    return Measuring(
        on=tuple(tuple(cluster) for cluster in on or ()),
        effort=Effort(
            steps=Effort.steps if steps is None else steps,
            time_limit_s=Effort.time_limit_s if time_limit_s is None else time_limit_s,
        ),
    )


def read_jobs(path: Path) -> list[Job]:
    """The jobs of a file, in its order.

    Raises JobListError, which names the field and the file, or OSError if it cannot be opened.
    """
    with open(path, "rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    try:
        document = parse_yaml(data).record(("format", "jobs"), ("defaults",))
        if document["format"].value != FORMAT:
            raise document["format"].error(
                f"expected {FORMAT!r}, found {document['format'].value!r}"
            )
        defaults = document["defaults"].record((), _COMMON) if "defaults" in document else {}
        jobs: list[Job] = []
        for entry in document["jobs"].sequence():
            jobs += _jobs(entry, defaults, path.parent)
            if len(jobs) > MAX_JOBS:
                raise entry.error(f"more than {MAX_JOBS} jobs")
        if not jobs:
            raise document["jobs"].error("the list is empty")
    except (DocumentError, OptionError) as error:
        raise JobListError(f"{error} (in file '{path}')") from None
    return jobs


_COMMON = (
    "machines",
    "planners",
    "seeds",
    "budget",
    "steps",
    "patience",
    "preset",
    "reward",
    "measure_on",
    "measure_steps",
    "measure_limit",
    "targets",
    "signature",
    "batch_size",
    "loop_trip_count",
    "shapes",
    "cost_table",
    "soft_placement",
    "capture_timeout",
)


def _jobs(entry: Field, defaults: dict[str, Field], where: Path) -> Iterator[Job]:
    own = entry.record((), ("graphs", "capture", *_COMMON))
    if ("graphs" in own) == ("capture" in own):
        raise entry.error("give either graphs or capture")
    fields = defaults | own

    def get(name: str, read: Callable[[Field], Any], default: Any = None) -> Any:
        return read(fields[name]) if name in fields else default

    spec = GraphSpec(
        targets=tuple(get("targets", _texts, ())),
        signature=get("signature", Field.text),
        batch_size=get("batch_size", _count),
        loop_trip_count=get("loop_trip_count", _count),
        shapes=tuple(get("shapes", _shapes, ())),
        allow_soft_placement=get("soft_placement", _bool),
        capture_timeout_s=get("capture_timeout", _duration, GraphSpec.capture_timeout_s),
        keep_graph=get("reward", _reward) == "measure",
    )
    measuring = get_measuring(
        get("reward", _reward, "simulate"),
        get("measure_on", _clusters),
        get("measure_steps", _count),
        get("measure_limit", _duration),
    )
    table = get("cost_table", Field.text)
    budget = default_budget(get("budget", _duration), get("steps", _count), get("patience", _count))
    preset = get("preset", _preset, Search.preset)
    if "capture" in own:
        specs = [replace(spec, script=_script(own["capture"], where))]
    else:
        specs = [replace(spec, path=str(where / name)) for name in _texts(own["graphs"])]
    named = [_machine(name, where) for name in get("machines", _texts, ())]
    machines: list[str | None] = [*named] or [None]
    planners = get("planners", _planners, ["hierarchical"])
    seeds = get("seeds", _seeds, [0])
    for graph in specs:
        for machine in machines:
            for planner in planners:
                for seed in seeds:
                    yield Job(
                        graph=replace(graph, machine=machine),
                        search=Search(
                            planner=planner,
                            seed=seed,
                            budget=budget,
                            cost_table=str(where / table) if table else None,
                            preset=preset if get_planner(planner).learns else Search.preset,
                            measuring=measuring,
                        ),
                    )


# ---- readers of fields ----


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
    return [item.whole_number(0, _INT64_MAX) for item in _items(field)]


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


def _clusters(field: Field) -> list[tuple[str, ...]]:
    return [tuple(text.split(",")) for text in _texts(field)]


def _duration(field: Field) -> float:
    try:
        return parse_duration(field.text())
    except ValueError as error:
        raise field.error(str(error)) from None


def _bool(field: Field) -> bool:
    if field.value not in ("true", "false"):
        raise field.error(f"expected true or false, found {field.value!r}")
    return bool(field.value == "true")


def _shapes(field: Field) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, sizes in field.mapping().items():
        yield name, tuple(size.whole_number(0, 10**15) for size in sizes.sequence())


def _script(field: Field, where: Path) -> tuple[str, ...]:
    """The script and its arguments; `-m module` stays as it is."""
    words = _texts(field)
    return tuple(words) if words[0] == "-m" else (str(where / words[0]), *words[1:])


def _machine(name: str, where: Path) -> str:
    return name if name in shipped_machines() else str(where / name)
