"""Where each figure of README and the documentation comes from, and what it is now.

    python tools/figures.py               lists the figures of README and docs: page, figure, source
    python tools/write_docs.py            writes them into the pages

A figure is a number with a unit, such as `1.35 times`. It has one of these sources:

- A page quotes it between two comments: `up to <!-- =error.measured.times -->1.35<!-- = -->
  times`. FIGURES says where it comes from: a file of docs/results, a constant of the code, or a
  sentence on a page of docs/results.
- It stands in a part that tools/write_docs.py writes, or in a file that a benchmark writes.
- A code block of the same page has it, too: the page explains its own sample.
- It is typed on a page of docs/results. The header of the page says which commit, date and machine
  made the section. No other page may type it.

A figure without a source is an error.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import NormalDist
from typing import Any

import results
from hplacer_optimizer.measuring import running_trial
from hplacer_optimizer.problem import cost_errors, memory
from hplacer_optimizer.problem import prediction_error as errors
from result_tables import gains_of, guarded_plans, read

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"

_QUOTED = re.compile(r"<!-- =(?P<name>[\w.]+) -->(?P<value>.*?)<!-- = -->", re.DOTALL)
WRITTEN = re.compile(r"<!-- (?P<name>[\w-]+): written by .*?<!-- end of (?P=name) -->", re.DOTALL)
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_UNITS = "times|ns|us|µs|ms|s|seconds?|minutes?|hours?|GiB|MiB|GB|MB|kB|TFLOP/s|ops"
# A number of a result, by what follows it.
_RESULT = re.compile(
    rf"(?P<first>{_NUMBER})(?: (?:to|and) (?P<last>{_NUMBER}))?"
    rf"(?:%| (?P<word>{_UNITS})\b)"
)
_BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE_OR_LINK = re.compile(r"`[^`\n]*`|\]\([^)]*\)")


@dataclass(frozen=True)
class Figure:
    """A figure, and where it comes from."""

    source: str
    value: Callable[[], str]


def _field(file: str, path: str, form: str, factor: float = 1.0) -> Figure:
    """A number of a JSON file, by the keys that lead to it."""

    def value() -> str:
        found = functools.reduce(operator.getitem, path.split("."), read(file))
        return form.format(factor * found)

    return Figure(f"docs/results/{file}: {path}", value)


def _cluster(task: str) -> Figure:
    """Steps a second with the plan of `auto`, over those of TensorFlow's placement."""
    return _field("cluster/cluster.json", f"tasks.{task}.planned.speedup", "{:.2f}")


def _largest_promise() -> str:
    """What `explain` promises over a new plan for the changed machine."""
    tasks = read("advice/advice.json")["tasks"].values()
    return f"{max(row['ratio'] for task in tasks for row in task['changes']):.3f}"


def _guard(costs: str, words: Callable[[list[float], list[float]], str], what: str) -> Figure:
    """From the measured speedups of the plans in effect, and of all plans with these costs."""

    def value() -> str:
        plans = guarded_plans(costs)
        in_effect = [speedup for speedup, is_in_effect in plans if is_in_effect]
        return words(in_effect, [speedup for speedup, _ in plans])

    return Figure(f"docs/results/guard/table.md: {costs} costs, {what}", value)


def _executed(task: str) -> Figure:
    """Of an emulated task: TensorFlow's executed step over those of the plans of `auto`."""
    file = "emulation/agreement.json"

    def value() -> str:
        found = {f"{gain:.2f}" for gain in gains_of(read(file)[task], "auto")}
        return " and ".join(sorted(found))

    return Figure(f"docs/results/{file}: {task}", value)


def _text(file: str, pattern: str) -> Figure:
    """What the group of the pattern finds in a file: a page of results, or a constant of C++."""

    def value() -> str:
        found = re.search(pattern, (ROOT / file).read_text())
        if found is None:
            raise ValueError(f"{file} has nothing like '{pattern}'")
        return found[1]

    return Figure(file, value)


def _sentence(page: str, pattern: str) -> Figure:
    """What the group of the pattern finds on a page of docs/results."""
    return _text(f"docs/results/{page}", pattern)


def _constant(path: str, form: str, of: Callable[[Any], Any] = lambda found: found) -> Figure:
    """What `of` makes of a constant, by its module and name below hplacer_optimizer."""
    module, _, name = path.rpartition(".")

    def value() -> str:
        return form.format(of(getattr(import_module(f"hplacer_optimizer.{module}"), name)))

    return Figure(f"hplacer_optimizer/{module.replace('.', '/')}.py: {name}", value)


def _size(path: str, of: Callable[[Any], float] = lambda found: found) -> Figure:
    """A constant that is a number of bytes, in MiB or GiB."""

    def words(found: Any) -> str:
        mib = round(of(found) / memory.MIB)
        return f"{mib // 1024} GiB" if mib >= 1024 else f"{mib} MiB"

    return _constant(path, "{}", words)


def _added(device_type: str, form: str) -> Figure:
    """What frameworks add to the memory that a device needs."""

    def of(added: dict[str, memory.Added]) -> str:
        found = added[device_type]
        return form.format(
            fragmentation=found.fragmentation,
            workspace_mib=found.workspace_bytes / memory.MIB,
            process_mib=found.process_bytes / memory.MIB,
        )

    return _constant("problem.memory.ADDED", "{}", of)


def _covered_peaks() -> Figure:
    """How many peaks of TensorFlow's allocator on emulated GPUs are below what is added."""
    file = "emulation/agreement.json"

    def value() -> str:
        runs = [run for task in read(file).values() for run in task if "peak_bytes" in run]
        peaks = [
            (simulated, took)
            for run in runs
            for simulated, took in zip(run["simulated_peak_bytes"], run["peak_bytes"], strict=True)
            if simulated > 100 * memory.MIB
        ]
        covered = [
            took
            <= memory.memory_range(
                "GPU", "GPU", peak_bytes=simulated, memory_bytes=0, is_limit=True
            ).most_bytes
            for simulated, took in peaks
        ]
        return f"{sum(covered)} of {len(covered)}"

    return Figure(f"docs/results/{file}: peak_bytes", value)


def _search_on_busy_cores(num_ops: int, form: str) -> Figure:
    """When a search beside training begins where no core is idle, for a graph of so many ops."""

    def value() -> str:
        costs = vars(import_module("hplacer_optimizer.plugin.trials.search_beside"))
        fixed_s = costs["_SHORT_S"] + costs["_AROUND_S"]
        per_op_s = costs["_SHORT_S_PER_OP"] + costs["_AROUND_S_PER_OP"]
        seconds = (fixed_s + num_ops * per_op_s) / running_trial.SHARE
        return form.format(seconds=seconds, minutes=seconds / 60)

    return Figure("hplacer_optimizer/plugin/trials/search_beside.py: _SHORT_S, _AROUND_S", value)


_ERRORS = "problem.prediction_error"
FIGURES: dict[str, Figure] = {
    "cluster.huge": _cluster("few_huge_products"),
    "cluster.towers": _cluster("two_tower"),
    "guard.graphs": _guard("measured", lambda _, every: str(len(every)), "all"),
    "guard.measured.count": _guard("measured", lambda used, _: str(len(used)), "in effect"),
    "guard.measured.range": _guard(
        "measured", lambda used, _: f"{min(used):.2f} to {max(used):.2f}", "in effect"
    ),
    "guard.estimated.count": _guard("estimated", lambda used, _: str(len(used)), "in effect"),
    "guard.estimated.range": _guard(
        "estimated", lambda used, _: f"{min(used):.2f} to {max(used):.2f}", "in effect"
    ),
    "trial.share": _constant("measuring.running_trial.SHARE", "{:.0%}"),
    "emulated.inception": _executed("inception_v3"),
    "emulated.nmt": _executed("nmt_2"),
    "emulated.rnnlm": _executed("rnnlm"),
    "emulated.mobilenet": _executed("mobilenet_v2-8xa100"),
    "emulated.transformer": _executed("transformer-8xa100"),
    "emulated.bert": _executed("bert_base-8xa100"),
    "emulated.efficientnet": _executed("efficientnet_b0-8xa100"),
    "error.measured.times": _constant(
        f"{_ERRORS}.ERROR_OF_MEASURED_COSTS", "{:.2f}", lambda error: 1 + error
    ),
    "error.measured.percent": _constant(f"{_ERRORS}.ERROR_OF_MEASURED_COSTS", "{:.0%}"),
    "error.estimated.times": _constant(
        f"{_ERRORS}.ERROR_OF_ESTIMATED_COSTS", "{:.2f}", lambda error: 1 + error
    ),
    "error.estimated.percent": _constant(f"{_ERRORS}.ERROR_OF_ESTIMATED_COSTS", "{:.0%}"),
    "error.launches.times": _constant(
        f"{_ERRORS}.ERROR_OF_LAUNCHES", "{:.2f}", lambda error: 1 + error
    ),
    "error.launches.percent": _constant(
        f"{_ERRORS}.ERROR_OF_LAUNCHES",
        "{:.0%}",
        lambda error: (1 + errors.ERROR_OF_ESTIMATED_COSTS) * (1 + error) - 1,
    ),
    "error.percentile": _sentence("guard.md", r"less 1, at the (\d+)th percentile"),
    "guard.least_gain": _constant(f"{_ERRORS}.LEAST_GAIN", "{:.0%}"),
    "guard.faster": _constant(f"{_ERRORS}.FASTER", "{:.0f}"),
    "guard.slower_copies": _constant(f"{_ERRORS}.SLOWER_COPIES", "{:.0f}"),
    "gpu.other_placements": _sentence("accelerators.md", r"take up to ([\d.]+) times as long"),
    "gpu.cpu_ops": _sentence("accelerators.md", r"CPU take (\w+ to \w+) times as long"),
    "gpu.copy": _sentence("accelerators.md", r"CPU and GPU costs (\d+ to \d+) us"),
    "gpu.copy.simulated": _sentence("accelerators.md", r"simulator has (\d+) us"),
    "search.large.seconds": _field("search/search.json", "large.80000.seconds", "{:.0f}"),
    "search.large.gb": _field("search/search.json", "large.80000.peak_bytes", "{:.2f}", 1e-9),
    "search.large.to_etf": _field("search/search.json", "large.80000.to_etf", "{:.3f}"),
    "advice.largest": Figure("docs/results/advice/advice.json", _largest_promise),
    "emulator.limit_s": _text("cc/emulator/clock.h", r"limit_ns_ = (\d+)'000'000'000"),
    "errors.estimated.factor": _constant(
        "problem.cost_errors.ESTIMATED_COSTS",
        "{:.1f}",
        lambda found: found.op / cost_errors.MEASURED_COSTS.op,
    ),
    "errors.most_ops": _constant(
        "problem.cost_errors._OPS",
        "{:,.0f}",
        lambda ops: round(ops // cost_errors._LEAST_DRAWS, -3),
    ),
    "options.budget_s": _constant("options.Options", "{:.0f}", lambda options: options().budget_s),
    # Of README, docs/start, docs/how-to, docs/reference and the FAQ.
    "options.wait_s": _constant("options.WAIT_S", "{:.0f}"),
    "trial.most": _constant("measuring.running_trial.MOST_S", "{:.0f}"),
    "trial.clear": _constant("measuring.running_trial.CLEAR", "{:.0%}"),
    "trial.width": _constant("measuring.running_trial.WIDTH", "{:.0%}"),
    "trial.least": _constant("plans.guard.LEAST_TRIED", "{:.0%}"),
    "trial.search.small": _search_on_busy_cores(0, "{seconds:.0f}"),
    "trial.search.large": _search_on_busy_cores(50_000, "{minutes:.0f}"),
    "turns.width": _constant("measuring.turns.WIDTH", "{:.0%}"),
    "interval.level": _constant(
        "measuring.turns._NORMAL", "{:.0%}", lambda z: 2 * NormalDist().cdf(z) - 1
    ),
    "advise.budget_s": _constant("inspection.advice.advising.SECONDS", "{:.0f}"),
    "memory.gpu.pieces": _added("GPU", "{fragmentation:.0%}"),
    "memory.gpu.workspace": _added("GPU", "{workspace_mib:.0f}"),
    "memory.gpu.process": _added("GPU", "{process_mib:.0f}"),
    "memory.cpu.pieces": _added("CPU", "{fragmentation:.0%}"),
    "memory.cpu.workspace": _added("CPU", "{workspace_mib:.0f}"),
    "memory.cpu.process": _added("CPU", "{process_mib:.0f}"),
    "memory.covered": _covered_peaks(),
    "size.gradients": _size("inspection.advice.replicas.BUCKET_BYTES"),
    "size.chain": _size(
        "measuring.calibration.calibrate._LARGE_ELEMENTS", lambda elements: 4 * elements
    ),
    "size.messages": _size("measuring.calibration.calibrate.SIZES_BYTES", max),
    "size.copies": _size("measuring.calibration.calibrate.LARGE_BYTES", max),
    "size.graph": _size("capture.sources.MAX_BYTES"),
    "size.store": _size("plans.store.layer.MAX_BYTES"),
    "size.working_copy": _size("scripts.working_copy.MAX_COPY_BYTES"),
    "size.yaml": _size("support.document.MAX_BYTES"),
    "size.section": _size("plans.plan_file.MAX_SECTION_BYTES"),
    "size.planned_problem": _size("plans.planned_problem.MAX_BYTES"),
    "size.token": _text("python/engine_json_reader.h", r"than (\d+ MiB)"),
    "planners.sct_s": _constant("planners.sct._DEFAULT_BUDGET", "{.seconds:.0f}"),
    "planners.rollout.per_op": _constant(
        "planners.rollout._SECONDS_PER_OP", "{:.1f}", lambda s: 1e3 * s
    ),
    "planners.rollout.least_s": _constant("planners.rollout._LEAST_SECONDS", "{:.1f}"),
    "planners.search.per_op": _constant(
        "planners.local_search._SECONDS_PER_OP", "{:.0f}", lambda s: 1e3 * s
    ),
    "planners.search.least_s": _constant("planners.local_search._LEAST_SECONDS", "{:.0f}"),
    "planners.search.most_s": _constant("planners.local_search._MOST_SECONDS", "{:.0f}"),
    "planners.learning_s": _constant("planners.learning.learner.DEFAULT_BUDGET", "{.seconds:.0f}"),
    "planners.learned_ops": _constant("planners.lineages._MOST_LEARNED_OPS", "{:,}"),
    "planners.robust.tolerance": _constant("planners.robustness.TOLERANCE", "{:.0%}"),
    "machines.threads": _constant("machines.machine.INTER_OP_THREADS", "{}"),
    "machines.executor_us": _constant(
        "machines.machine_file._EXECUTOR_OVERHEAD_NS", "{:.0f}", lambda ns: ns / 1e3
    ),
}


def pages() -> list[Path]:
    """README and the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def quotes(text: str) -> bool:
    """Whether the page quotes any figure."""
    return _QUOTED.search(text) is not None


@functools.cache
def value(name: str) -> str:
    """The figure as it is now."""
    return FIGURES[name].value()


def written(text: str) -> str:
    """The page with its figures as they are now. Raises KeyError for a name that has no source."""
    return _QUOTED.sub(
        lambda found: f"<!-- ={found['name']} -->{value(found['name'])}<!-- = -->", text
    )


@dataclass(frozen=True)
class Use:
    """A figure on a page."""

    page: str
    line: int
    text: str
    source: str  # "": none


def uses(path: Path) -> Iterator[Use]:
    """The figures of a page, by kind of source, and those that have none."""
    page, text = str(path.relative_to(ROOT)), path.read_text()
    lines, samples = text.splitlines(), "".join(_BLOCK.findall(text))
    text = _CODE_OR_LINK.sub(_only_lines, _BLOCK.sub(_only_lines, text))
    for found in _QUOTED.finditer(text):
        source = FIGURES[found["name"]].source
        yield Use(page, text.count("\n", 0, found.start()) + 1, found["value"], source)
    text = _QUOTED.sub(_only_lines, text)
    for part in WRITTEN.finditer(text):
        for found in _RESULT.finditer(part[0]):
            line = text.count("\n", 0, part.start() + found.start()) + 1
            yield Use(page, line, found[0], f"tools/write_docs.py {part['name']}")
    text = WRITTEN.sub(_only_lines, text)
    for found in _RESULT.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        is_sample = _is_in(samples, found)
        source = "the sample on this page" if is_sample else _typed(path, lines[:line])
        yield Use(page, line, found[0], source)


def _only_lines(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _is_in(samples: str, figure: re.Match[str]) -> bool:
    """Whether a code block has the figure, with its unit as in prose or as commands have it."""
    unit = re.sub(r"(?<=^[smh])(econd|inute|our)s?$", "", figure["word"] or "%")
    numbers = [number for number in (figure["first"], figure["last"]) if number]
    return all(re.search(rf"(?<![\d.,]){re.escape(number)} ?{unit}", samples) for number in numbers)


def _typed(path: Path, before: Sequence[str]) -> str:
    """What made a figure that is typed on a page of results, or in a file of a benchmark."""
    if RESULTS not in path.parents:
        return ""
    page = str(path.relative_to(RESULTS))
    sections = [line.removeprefix("## ") for line in before if line.startswith("## ")]
    for part in _record():
        if page in part.files:
            return f"written by {part.command}"
        if page == part.page and (
            not (sections and part.section) or sections[-1] in part.section.split(", ")
        ):
            return f"typed here: {part.commit}, {part.date}, {part.machine}"
    return ""


@functools.cache
def _record() -> list[results.Part]:
    return results.read()


def main() -> int:
    """1 if a figure has no source."""
    missing = 0
    for page in pages():
        for use in uses(page):
            print(f"{use.page}:{use.line}: {use.text}: {use.source or 'no source'}")
            missing += not use.source
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
