"""Do trials find out what pays on emulated GPUs, in virtual time, and what do they cost?

NMT with two layers and two towers, as functions, on two and on four GPUs. Each training is a
process of its own, of so many steps:

    alone      without the optimizer
    plan       with the plan that a search at the first start finds, whatever is predicted
    guard      on_miss="plan": what is predicted decides
    trial      on_miss="trial", from an empty store
    no drop    the same, but a plan whose first steps take twice as long is not dropped early
    fixed      the same, with 100 timed steps of each side

Kernels allocate only what they would write: virtual times are the same. A plan that harms is there,
too: "stripes" has a store with the graph cut in two, which every trial finds.

    python -m benchmarks.trial_emulated --output docs/results/trials
    python -m benchmarks.trial_emulated --models towers --machines 1cpu-2xk40 --steps 300
    python -m benchmarks.trial_emulated --machines here --steps 2000 --output build/trials

With `--machines here`, trainings run on the first GPU of this machine, divided into two, and all
times are real ones. They wait for the search, which is not counted as time of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.emulation_scripts import HERE
from benchmarks.trial import TRIALS, largest_plan, outcome_of
from hplacer_optimizer import emulation
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.support import child_process
from testbed.divided_gpu import divide_gpu
from testbed.told_rows import keep, kept, tell, told_by

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "NMT": ("nmt", {"layers": 2, "steps": 2, "hidden": 512, "vocabulary": 2_000}),
    "two towers": (
        "two_tower",
        {"features": 4, "rows": 20_000, "hidden": 1024, "layers": 3, "pin_tables": False},
    ),
}
MACHINES = ("1cpu-2xk40", "1cpu-4xk40")
ALONE, PLAN, GUARD = "alone", "plan", "guard"
STRIPES = "stripes"
_SHORT = 30  # steps that tell how long a step takes
_WARMUP = 3


# ---- the process of a training ----


def train(model: str, machine: str, steps: int) -> None:
    """Trains and prints what it saw as JSON, in seconds, of virtual time on emulated devices."""
    if machine != HERE:
        emulation.enable(machine, compute=False)
    elif not divide_gpu():
        raise SystemExit("TensorFlow finds no GPU here")
    import tensorflow as tf

    import hplacer_optimizer as hp
    from hplacer_optimizer.plugin import service

    step = function_of(*MODELS[model])
    now = emulation.step_clock()
    wait = tf.test.experimental.sync_devices if machine == HERE else emulation.synchronise
    lasts_s: list[float] = []
    trials: Any = None
    while len(lasts_s) < steps:
        begin_s = now()
        step()
        wait()
        lasts_s.append(now() - begin_s)
        trials = service._service.trials if service._service else None
        if trials and _is_decided(trials):
            steps = min(steps, len(lasts_s) + _SHORT)
        elif trials and len(lasts_s) == 7:  # it has been called often enough for a search
            _wait_for_search(trials)
    found = {
        "steps": len(lasts_s),
        "step_s": statistics.median(lasts_s[_WARMUP if steps > _WARMUP else 0 :]),
        "last_step_s": statistics.median(lasts_s[-_SHORT // 2 :]),
        "lasted_s": sum(lasts_s),
        "charged_s": trials._budget.spent_s if trials else 0.0,
        "outcomes": [one.outcome for one in hp.history()] if trials else [],
        "devices": len(tf.config.list_logical_devices("GPU")),
    }
    tell(found)


def _is_decided(trials: Any) -> bool:
    functions = [one.function for one in trials._candidates if one.plan is not None]
    return bool(functions) and all(function.is_settled for function in functions)


def _wait_for_search(trials: Any) -> None:
    """It takes no virtual time. The real time that it takes on a GPU is not counted."""
    while any(one.plan is None and not one.function.is_settled for one in trials._candidates):
        time.sleep(0.1)


def function_of(workload: str, parameters: Mapping[str, Any]) -> Callable[[], Any]:
    """The training step of a workload as a function, with variables of TensorFlow 2."""
    import tensorflow as tf

    from hplacer_optimizer.workloads.graphs import build_graph

    v1 = tf.compat.v1
    built = build_graph(workload, **parameters)
    with built.graph.as_default():
        inside = v1.global_variables()
    names = [built.loss.op.name, built.train_op.name]
    definition = v1.graph_util.extract_sub_graph(built.graph.as_graph_def(), names)
    variables = {
        f"{one.handle.op.name}:0": tf.Variable(tf.zeros(one.shape, one.dtype.base_dtype))
        for one in inside
    }
    used = {f"{node.name}:0" for node in definition.node}
    # What `input_map` stands for would stay, and a handle of a function's own is state of its own.
    kept = [node for node in definition.node if f"{node.name}:0" not in variables]
    for node in kept:  # ops on a variable are beside it in any case
        node.attr.pop("_class", None)
    del definition.node[:]
    definition.node.extend(kept)

    @tf.function(autograph=False)
    def train_step() -> Any:
        capture = v1.get_default_graph().capture
        handles = {name: capture(one.handle) for name, one in variables.items() if name in used}
        loss, update = tf.graph_util.import_graph_def(
            definition, input_map=handles, return_elements=[f"{names[0]}:0", names[1]], name=""
        )
        with tf.control_dependencies([update]):
            return tf.identity(loss)

    step: Callable[[], Any] = train_step
    return step


# ---- all trainings of a row ----


def run(model: str, machine: str, steps: int, **variables: str) -> dict[str, Any]:
    """One training; RuntimeError with what it said where it fails."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "HPLACER_LOG": "info"}
    environment = child_process.environment(**quiet, **variables)
    arguments = ["benchmarks.trial_emulated", "--train", model, machine, str(steps)]
    return told_by(f"{model} on {machine}", arguments, environment, timeout_s=1800)


def measure(
    model: str, machine: str, steps: int, kinds: Sequence[str], directory: Path
) -> list[dict[str, Any]]:
    """Two rows: of the plan that a search finds, and of stripes."""
    forced = directory / "forced"
    alone = run(model, machine, _SHORT, HPLACER_DISABLE="1")
    make = f"on_miss=plan,min_gain=-1,cache={forced}"
    run(model, machine, 1, HPLACER_OPTIONS=make)
    rows = []
    for which, store in ((PLAN, forced), (STRIPES, _with_stripes(forced, directory / "stripes"))):
        planned = run(
            model, machine, _SHORT, HPLACER_OPTIONS=f"on_miss=skip,min_gain=-1,cache={store}"
        )
        row: dict[str, Any] = {
            "model": model,
            "machine": machine,
            "plan": which,
            "alone_s": alone["last_step_s"],
            "plan_s": planned["last_step_s"],
            "speedup": alone["last_step_s"] / planned["last_step_s"],
            "predicted": largest_plan(PlanStore(store)).speedup,
        }
        guarded = run(model, machine, 1, HPLACER_OPTIONS=f"on_miss=skip,cache={store}")
        row[GUARD] = {"in_effect": bool({"loaded", "shared"} & set(guarded["outcomes"]))}
        for kind, rules in ((kind, TRIALS[kind]) for kind in kinds):
            # The plan is searched for beside training, but where it is to be a bad one.
            own = directory / f"{which} {kind}".replace(" ", "")
            if which == STRIPES:
                _copy(store, own)
            found = run(
                model,
                machine,
                steps,
                HPLACER_OPTIONS=f"cache={own}" + (",min_gain=-0.99" if which == STRIPES else ""),
                HPLACER_TRIAL_RULES=json.dumps(rules),
            )
            row[kind] = outcome_of(found) | {key: found[key] for key in ("lasted_s", "steps")}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def _copy(store: Path, other: Path) -> None:
    for fingerprint in PlanStore(store).fingerprints():
        plan = PlanStore(store).get(fingerprint)
        assert plan is not None
        PlanStore(other).put(plan)


def _with_stripes(store: Path, other: Path) -> Path:
    """The plan of the largest graph, with its units on two GPUs in turn."""
    plan = largest_plan(PlanStore(store))
    problem, node_op = plan.problem(), plan.node_op
    gpus = [i for i, name in enumerate(problem.device_names) if "GPU" in name][:2]
    placement = np.array(plan.placement)
    for unit in range(problem.num_units):
        ops = np.flatnonzero(problem.units == unit)
        pointer = problem.allowed_ptr[ops[0]], problem.allowed_ptr[ops[0] + 1]
        if set(gpus) <= set(problem.allowed_device[pointer[0] : pointer[1]].tolist()):
            placement[ops] = gpus[unit % 2]
    trace = simulate(problem, placement)
    PlanStore(other).put(
        replace(
            plan,
            node_devices=placement[node_op],
            step_time_ns=trace.makespan_ns,
            peak_bytes=trace.peak_bytes.tolist(),
            feasible=trace.feasible,
            planner=STRIPES,
        )
    )
    return other


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """In Markdown, with what it comes to."""
    kinds = [kind for kind in TRIALS if all(kind in row for row in rows)]
    head = "| model | machine | plan | alone, ms | plan, ms | times as fast | predicted | guard | "
    lines = [head + " | ".join(kinds) + " |", "|---" * (8 + len(kinds)) + "|"]
    for row in rows:
        cells = [
            f"{'stays' if row[kind]['in_effect'] else 'no'}, "
            f"{row[kind]['charged_s'] * 1e3:.1f} of {row[kind]['lasted_s'] * 1e3:.0f} ms"
            for kind in kinds
        ]
        lines.append(
            f"| {row['model']} | {row['machine']} | {row['plan']} | {row['alone_s'] * 1e3:.3f} | "
            f"{row['plan_s'] * 1e3:.3f} | {row['speedup']:.2f} | {row['predicted'] or 0:.2f} | "
            f"{'yes' if row[GUARD]['in_effect'] else 'no'} | " + " | ".join(cells) + " |"
        )
    paying = [row for row in rows if row["speedup"] >= 1.05]
    harmful = [row for row in rows if row["speedup"] < 1 / 1.01]
    lines.append("")
    for kind in (GUARD, *kinds):
        used = [row for row in rows if row[kind]["in_effect"]]
        said = (
            f"{kind}: in effect {sum(row in used for row in paying)} of {len(paying)} that pay by "
            f"5%, {sum(row in used for row in harmful)} of {len(harmful)} that harm"
        )
        if kind != GUARD:
            lost = max(row[kind]["charged_s"] / row[kind]["lasted_s"] for row in rows)
            said += f"; at most {lost:.1%} of a run's virtual time lost"
        lines.append(f"- {said}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Runs, prints the table and writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="M")
    parser.add_argument("--machines", nargs="+", default=MACHINES, metavar="MACHINE")
    parser.add_argument("--steps", type=int, default=600, help="of a trial at most, default: 600")
    parser.add_argument("--kinds", nargs="+", choices=TRIALS, default=list(TRIALS), metavar="KIND")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for emulated.json and .md")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.train:
        train(options.train[0], options.train[1], int(options.train[2]))
        return 0
    os.environ.pop("HPLACER_OPTIONS", None)
    file = options.output / "emulated.json" if options.output else None
    rows = kept(file)
    for model in options.models:
        for machine in options.machines:
            if any((row["model"], row["machine"]) == (model, machine) for row in rows):
                continue
            with tempfile.TemporaryDirectory() as directory:
                rows += measure(model, machine, options.steps, options.kinds, Path(directory))
            keep(file, rows, table(rows))
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
