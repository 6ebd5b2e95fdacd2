"""What the learned planners learn, and how fast.

    python benchmarks/learning.py [--output DIR] [--seconds 90] [--seeds 3] [--jobs 1] [--json]
    python benchmarks/learning.py --parts throughput large
    python benchmarks/learning.py --parts ablation [--placements 3200] [--problems DIR]

Parts, all by the simulator, on the papers' tasks and calibrated machines:

    ablation    what the networks of `hierarchical` are worth: it as it is, and with parts of it
                taken away (ABLATION below), each with --placements scored placements, also on the
                modern tasks; beside `auto` for ten seconds, and the best single device. What is
                compared is the best placement; all rows of `hierarchical` begin with what
                `rollout` builds once. The means of the first and last tenth of what networks drew
                tell whether they learned.
    seconds     `hierarchical` and `auto` with equally many --seconds, on all tasks of the ablation.
    throughput  placements drawn, scored and learned from per second on Inception-V3 (2 K40 and a
                CPU), start of TensorFlow excluded: with the network sizes of Google's released
                controller (60 groups, Placer 512, Grouper 64), with both presets' other values, and
                with the default preset. That controller made 0.6 per second.
    curves      `hierarchical` for --seconds per task and seed: its learning curve as PNG and JSON;
                the mean step time of the first and last tenth of what its networks drew, against
                the best single device, 1,000 uniform placements on the GPUs and the best placement
                known (of all list schedulers, partitioners, the expert and all seeds of this run);
                and its best placement against the expert.
    effort      `hierarchical` against `hierarchical_random_grouping` and against the best of
                uniform random placements on the GPUs, each with the same number of scored
                placements: those of --bench, the results.json of `hplacer bench paper
                --placements N --seeds 3`.
    large       a training step of more than 80,000 ops (nmt_8 with longer sequences): seconds per
                policy step and peak memory.

Results are written to DIR/learning.json after every part, after every task of the curves, and after
every run of the ablation and of the part seconds, which go on with what DIR has not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer._engine import Problem, lower_bound
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.tasks import PAPER, Task, modern_tasks
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.planners import PLANNERS, Budget, Progress
from hplacer_optimizer.planners.devices import candidate_mask, devices_of_type, first_candidate
from hplacer_optimizer.planners.learning import PRESETS, learn
from hplacer_optimizer.planners.learning.scoring import best_single_device
from hplacer_optimizer.problem.simulator import simulate, simulate_batch

sys.path.append(str(Path(__file__).resolve().parents[1]))
from benchmarks.rollout import step_ns

PARTS = ("ablation", "seconds", "throughput", "curves", "effort", "large")
TASKS = {task.name: task for task in (*PAPER, *modern_tasks(("8xa100",)))}
_NEVER_UPDATED = {"learning_rate": 1e-9, "imitate_best": 1e-9}
ABLATION: dict[str, dict[str, Any]] = {
    "trained": {},
    "frozen": _NEVER_UPDATED,  # the networks stay as they are at random
    "uniform": {**_NEVER_UPDATED, "refine": 1.0},  # and draw next to nothing: 2 of 64 placements
    "fresh draws only": {"refine": 0.0, "imitate_best": 0.0},  # policy gradient alone
}
_DRAWING = ("trained", "frozen", "fresh draws only")
_ROWS = (*ABLATION, "auto")
_AUTO_S = 10.0
_RIVALS = ("hierarchical", "auto")
CONTROLLER_PER_S, THROUGHPUT_GOAL = 0.6, 15.0
CONTROLLER_SIZES = {"groups": 60, "placer_hidden": 512, "grouper_hidden": 64}
CURVE_TASKS = ("inception_v3", "nmt_2")  # of which PNGs are drawn
_UNIFORM = 1_000
_BATCH = 50
_POINTS = 150  # of a curve that is kept
_LARGE_STEP_S, _LARGE_BYTES = 5.0, 8 * 10**9
_LARGE = {"steps": 68}  # of the encoder and of the decoder


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the parts and prints what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--output", type=Path, default=Path("hplacer-learning"), metavar="DIR")
    parser.add_argument("--seconds", type=float, default=90.0, help="per run; default: 90")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument("--jobs", type=int, default=1, help="curves at once; default: 1")
    parser.add_argument("--bench", type=Path, metavar="FILE", help="for the part effort")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--placements", type=int, default=3200, help="of the ablation's rows")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="default: DIR of --output")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(argv)
    options.problems = options.problems or options.output
    for directory in (options.output, options.problems):
        directory.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    path = options.output / "learning.json"
    if path.exists():
        results = json.loads(path.read_text())
    for part in options.parts:
        results[part] = _RUN[part](options, results)
        _save(options, results)
    print(json.dumps(results, indent=1) if options.json else _lines(results))
    return 0


def _save(options: argparse.Namespace, results: dict[str, Any]) -> None:
    text = json.dumps(results, indent=1) + "\n"
    (options.output / "learning.json").write_text(text)


def _tasks(options: argparse.Namespace) -> list[Task]:
    return [task for task in PAPER if task.name in options.tasks]


# ---- ablation ----


def _ablation(options: argparse.Namespace, results: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = results.setdefault("ablation", {})
    for name in options.tasks:
        row = found.get(name)
        if row is None or row["placements"] != options.placements:
            row = found[name] = {"placements": options.placements, "auto_s": _AUTO_S, "runs": {}}
        if all(len(row["runs"].get(kind, ())) >= options.seeds for kind in _ROWS):
            continue
        problem = prepare(TASKS[name], options.problems)
        row |= {
            "ops": problem.num_ops,
            "single_device_ns": step_ns(problem, best_single_device(problem)),
        }
        for kind in _ROWS:
            runs = row["runs"].setdefault(kind, [])
            for seed in range(len(runs), options.seeds):
                if kind in ABLATION:
                    runs.append(_ablated(problem, kind, seed, options.placements))
                else:
                    runs.append(_by_auto(problem, seed))
                _save(options, results)
                print(name, kind, runs[-1], flush=True)
    return found


def _ablated(problem: Problem, kind: str, seed: int, placements: int) -> dict[str, Any]:
    """A run that learns; the single device that `learn` may answer does not count."""
    begin_s = time.monotonic()
    default = PRESETS["default"]
    steps = max(1, placements // (default.groupings * default.placements))
    learned = learn(problem, settings=ABLATION[kind], budget=Budget(steps=steps), seed=seed)
    return {
        "seed": seed,
        "seconds": round(time.monotonic() - begin_s, 1),
        "best_ns": learned.curve[-1].best_ns,
        **_tenths([asdict(progress) for progress in learned.curve]),
    }


def _by_auto(problem: Problem, seed: int) -> dict[str, Any]:
    begin_s = time.monotonic()
    answer = PLANNERS["auto"].plan(problem, budget=Budget(seconds=_AUTO_S), seed=seed)
    return {
        "seed": seed,
        "seconds": round(time.monotonic() - begin_s, 1),
        "placements": answer.placements,
        "best_ns": step_ns(problem, answer.placement),
    }


def _ablation_lines(found: dict[str, Any]) -> list[str]:
    """A Markdown table of medians in ms (lowest to highest), and each row over `uniform`."""
    lines = [
        f"| task | placements | {' | '.join(_ROWS)} | single device |",
        "|---" * (3 + len(_ROWS)) + "|",
    ]
    for name, row in found.items():
        cells = [_steps_ms(row["runs"].get(kind, ())) for kind in _ROWS]
        single = _ms(row["single_device_ns"])
        lines.append(f"| {name} | {row['placements']:,} | {' | '.join(cells)} | {single} |")
    for kind in _ROWS:
        lines.append(f"{kind} / uniform: {_over_uniform(found, kind)}")
    for name, row in found.items():
        for kind in _DRAWING:
            runs = row["runs"].get(kind, ())
            means = [f"{_ms(run['first_tenth_ns'])} to {_ms(run['last_tenth_ns'])}" for run in runs]
            lines.append(f"{name}, {kind}, mean of draws, first to last tenth: {', '.join(means)}")
    return lines


def _over_uniform(found: dict[str, Any], kind: str) -> str:
    ratios = []
    for row in found.values():
        ours, uniform = (_median_ns(row["runs"].get(key, ())) for key in (kind, "uniform"))
        if np.isfinite([ours, uniform]).all():
            ratios.append(ours / uniform)
    if not ratios:
        return "none"
    shorter = sum(ratio < 1 for ratio in ratios)
    return f"{statistics.geometric_mean(ratios):.3f}, shorter on {shorter} of {len(ratios)}"


def _median_ns(runs: Sequence[dict[str, Any]]) -> float:
    """Of the seeds; a run without a placement that fits counts as an endless step."""
    steps = [np.inf if run["best_ns"] is None else run["best_ns"] for run in runs]
    return statistics.median(steps) if steps else np.inf


def _steps_ms(runs: Sequence[dict[str, Any]]) -> str:
    steps = [run["best_ns"] for run in runs if run["best_ns"] is not None]
    if not steps:
        return "none fits" if runs else "-"
    return f"{_ms(_median_ns(runs))} ({_ms(min(steps))} to {_ms(max(steps))})"


def _ms(ns: float | None) -> str:
    return "none fits" if ns is None or np.isinf(ns) else f"{ns / 1e6:.4g}"


# ---- seconds ----


def _seconds(options: argparse.Namespace, results: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = results.setdefault("seconds", {})
    for name in options.tasks:
        row = found.get(name)
        if row is None or row["seconds"] != options.seconds:
            row = found[name] = {"seconds": options.seconds, **{kind: [] for kind in _RIVALS}}
        if all(len(row[kind]) >= options.seeds for kind in _RIVALS):
            continue
        problem = prepare(TASKS[name], options.problems)
        for seed in range(options.seeds):
            for kind in _RIVALS:  # in turn
                if seed < len(row[kind]):
                    continue
                budget = Budget(seconds=options.seconds)
                answer = PLANNERS[kind].plan(problem, budget=budget, seed=seed)
                row[kind].append({"seed": seed, "best_ns": step_ns(problem, answer.placement)})
                _save(options, results)
                print(name, kind, row[kind][-1], flush=True)
    return found


def _seconds_lines(found: dict[str, Any]) -> list[str]:
    """A Markdown table of medians in ms (lowest to highest), and their ratio."""
    ours, theirs = _RIVALS
    lines = [f"| task | seconds | {ours} | {theirs} | ratio |", "|---|---|---|---|---|"]
    ratios = []
    for name, row in found.items():
        ratios.append(_median_ns(row[ours]) / _median_ns(row[theirs]))
        cells = f"{_steps_ms(row[ours])} | {_steps_ms(row[theirs])} | {ratios[-1]:.3f}"
        lines.append(f"| {name} | {row['seconds']:g} | {cells} |")
    shorter, mean = sum(ratio < 1 for ratio in ratios), statistics.geometric_mean(ratios)
    lines.append(f"{ours} / {theirs}: {mean:.3f}, shorter on {shorter} of {len(ratios)}")
    return lines


# ---- throughput ----


def _throughput(options: argparse.Namespace, _: dict[str, Any]) -> dict[str, Any]:
    problem = prepare(PAPER[0], options.problems)
    runs = {
        "paper": ("paper", CONTROLLER_SIZES | {"clusters": 0}),
        "default, equal sizes": ("default", CONTROLLER_SIZES),
        "default": ("default", {}),
    }
    found = {}
    for name, (preset, settings) in runs.items():
        times: list[tuple[float, int]] = []

        def told(progress: Progress, times: list[tuple[float, int]] = times) -> None:
            times.append((time.monotonic(), progress.placements))

        learn(
            problem,
            preset=preset,
            settings=settings,
            budget=Budget(seconds=40),
            on_progress=told,
        )
        per_s = (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])
        found[name] = {"per_s": per_s, "times_the_controller": per_s / CONTROLLER_PER_S}
    return found


# ---- curves ----


def _curves(options: argparse.Namespace, results: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = results.setdefault("curves", {})  # of other tasks, at another time
    tasks = _tasks(options)
    problems = [prepare(task, options.problems) for task in tasks]
    baselines = [_baselines(problem) for problem in problems]
    seeds = range(options.seeds)
    with ThreadPoolExecutor(options.jobs) as pool:
        curves = [
            [pool.submit(_curve, problem, options.seconds, seed) for seed in seeds]
            for problem in problems
        ]
        for task, problem, others, waiting in zip(tasks, problems, baselines, curves, strict=True):
            row = _curves_of_task(problem, others, [curve.result() for curve in waiting])
            row |= {"seconds": options.seconds, "runs_at_once": options.jobs}
            found[task.name] = row
            if task.name in CURVE_TASKS:
                _draw(task, row, options.output / f"{task.name}-learning.png")
            _save(options, results)
    return found


def _curve(problem: Problem, seconds: float, seed: int) -> dict[str, Any]:
    learned = learn(problem, budget=Budget(seconds=seconds), seed=seed)
    return {
        "seed": seed,
        "steps": learned.steps,
        "placements": learned.placements,
        "best_ns": learned.makespan_ns,
        "curve": [asdict(progress) for progress in learned.curve],
    }


def _curves_of_task(
    problem: Problem, baselines: dict[str, int], runs: list[dict[str, Any]]
) -> dict[str, Any]:
    uniform_ns, uniform_infeasible = _uniform_gpus(problem, _UNIFORM)
    known_ns = min([*baselines.values(), *(run["best_ns"] for run in runs if run["best_ns"])])
    return {
        "lower_bound_ns": lower_bound(problem).ns,
        "baselines_ns": baselines,
        "single_device_ns": step_ns(problem, best_single_device(problem)),
        "uniform_gpus_ns": uniform_ns,
        "uniform_gpus_infeasible": uniform_infeasible,
        "best_known_ns": known_ns,
        "runs": [{**run, "curve": _thinned(run["curve"]), **_tenths(run["curve"])} for run in runs],
    }


def _baselines(problem: Problem) -> dict[str, int]:
    """Feasible step times of what needs no learning."""
    found = {}
    for name, planner in PLANNERS.items():
        if planner.learns or name in ("random", "local_search"):  # which is a part of `auto`
            continue
        try:
            trace = simulate(problem, planner.plan(problem).placement)
        except HPlacerError:
            continue
        if trace.feasible and trace.makespan_ns is not None:
            found[name] = trace.makespan_ns
    return found


def _uniform_gpus(problem: Problem, count: int) -> tuple[float | None, float]:
    """Mean of the feasible ones, and the share of the others."""
    makespan_ns, feasible = _score_uniform(problem, count, seed=0)
    mean = float(makespan_ns[feasible].mean()) if feasible.any() else None
    return mean, float(1 - feasible.mean())


def _score_uniform(problem: Problem, count: int, seed: int) -> tuple[Any, Any]:
    """Each unit on one of the GPUs where it may run, else where it may."""
    gpus = devices_of_type(problem, "GPU")
    may_run = candidate_mask(problem)
    fallback = first_candidate(problem, gpus)
    rng = np.random.default_rng(seed)
    times, feasible = [], []
    for start in range(0, count, _BATCH):
        size = (min(_BATCH, count - start), problem.num_units)
        device = rng.choice(gpus, size=size)
        allowed = may_run[np.arange(problem.num_units), device]
        placed = np.where(allowed, device, fallback)[:, problem.units].astype(np.int32)
        makespan_ns, fits, _ = simulate_batch(problem, placed, threads=os.cpu_count() or 1)
        times.append(makespan_ns)
        feasible.append(fits)
    return np.concatenate(times), np.concatenate(feasible)


def _tenths(curve: list[dict[str, Any]]) -> dict[str, Any]:
    """Of what was drawn first and last."""
    tenth = max(1, len(curve) // 10)
    return {
        "first_tenth_ns": _mean(curve[:tenth]),
        "last_tenth_ns": _mean(curve[-tenth:]),
        "infeasible_first_tenth": statistics.fmean(p["infeasible"] for p in curve[:tenth]),
        "infeasible_last_tenth": statistics.fmean(p["infeasible"] for p in curve[-tenth:]),
    }


def _thinned(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most _POINTS points, each of several steps."""
    size = -(-len(curve) // _POINTS) or 1
    parts = [curve[begin : begin + size] for begin in range(0, len(curve), size)]
    return [
        {
            **part[-1],
            "mean_ns": _mean(part),
            "infeasible": statistics.fmean(p["infeasible"] for p in part),
        }
        for part in parts
    ]


def _mean(curve: list[dict[str, Any]]) -> float | None:
    """Of the steps in which something that the networks drew fits."""
    means = [point["mean_ns"] for point in curve if point["mean_ns"] is not None]
    return statistics.fmean(means) if means else None


def _draw(task: Task, found: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for run, color in zip(found["runs"], ("tab:blue", "tab:orange", "tab:green"), strict=False):
        curve = run["curve"]
        placements = [p["placements"] for p in curve]
        means = [np.nan if p["mean_ns"] is None else p["mean_ns"] / 1e6 for p in curve]
        axes.plot(placements, means, color=color, alpha=0.4, linewidth=0.8)
        axes.plot(
            placements,
            [np.nan if p["best_ns"] is None else p["best_ns"] / 1e6 for p in curve],
            color=color,
            label=f"seed {run['seed']}: best so far (thin: mean of a step)",
        )
    for name, key, style in (
        ("best single device", "single_device_ns", "--"),
        ("mean of uniform GPU placements", "uniform_gpus_ns", ":"),
    ):
        if found[key] is not None:
            axes.axhline(found[key] / 1e6, color="gray", linestyle=style, label=name)
    best_name, best_ns = min(found["baselines_ns"].items(), key=lambda item: item[1])
    axes.axhline(best_ns / 1e6, color="black", linestyle="-.", label=f"best baseline: {best_name}")
    axes.set_title(f"{task.title}: what `hierarchical` draws")
    axes.set_xlabel("placements scored")
    axes.set_ylabel("simulated step time, ms")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=100)


# ---- effort ----


def _effort(options: argparse.Namespace, _: dict[str, Any]) -> dict[str, Any]:
    if options.bench is None:
        raise SystemExit("effort: needs --bench, the results.json of `hplacer bench paper`")
    bench = {task["name"]: task for task in json.loads(options.bench.read_text())["tasks"]}
    found: dict[str, Any] = {}
    for task in _tasks(options):
        problem = prepare(task, options.problems)
        cells = {row["planner"]: row["cells"] for row in bench[task.name]["planners"]}
        rows = []
        for ours, grouped in zip(
            cells["hierarchical"], cells["hierarchical_random_grouping"], strict=True
        ):
            count = ours["placements"]
            makespan_ns, feasible = _score_uniform(problem, count, 1 + ours["seed"])
            rows.append(
                {
                    "seed": ours["seed"],
                    "placements": count,
                    "hierarchical_ns": _feasible_ns(ours),
                    "random_grouping_ns": _feasible_ns(grouped),
                    "random_search_ns": int(makespan_ns[feasible].min())
                    if feasible.any()
                    else None,
                }
            )
        found[task.name] = rows
    return found


def _feasible_ns(cell: dict[str, Any]) -> int | None:
    return cell["step_time_ns"] if cell["feasible"] else None


# ---- large ----


def _large(options: argparse.Namespace, _: dict[str, Any]) -> dict[str, Any]:
    nmt_8 = next(task for task in PAPER if task.name == "nmt_8")
    parameters = {**nmt_8.parameters, **_LARGE}
    problem = prepare(replace(nmt_8, name="nmt_8_long", parameters=parameters), options.problems)
    found = {}
    for preset in ("default", "paper"):
        times = [time.monotonic()]
        peak = 0

        def told(_: Progress, times: list[float] = times) -> None:
            nonlocal peak
            times.append(time.monotonic())
            peak = max(peak, _peak_bytes_of_children())

        learn(problem, preset=preset, budget=Budget(steps=6), on_progress=told)
        steps = np.diff(times)[1:]  # the first holds the start of TensorFlow
        found[preset] = {
            "ops": problem.num_ops,
            "units": problem.num_units,
            "step_s": float(np.median(steps)),
            "slowest_step_s": float(steps.max()),
            "start_s": float(times[1] - times[0]),
            "peak_bytes": peak,
        }
    return found


def _peak_bytes_of_children() -> int:
    """The largest resident size that a child of this process has had."""
    own = os.getpid()
    peaks = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except (OSError, ValueError):
            continue
        if int(lines["PPid"]) == own and "VmHWM" in lines:
            peaks.append(int(lines["VmHWM"].split()[0]) * 1024)
    return max(peaks)


# ---- what is printed ----


def _lines(results: dict[str, Any]) -> str:
    lines = _ablation_lines(results["ablation"]) if "ablation" in results else []
    lines += _seconds_lines(results["seconds"]) if "seconds" in results else []
    for name, row in results.get("throughput", {}).items():
        lines.append(
            f"throughput, {name}: {row['per_s']:.1f} placements/s, "
            f"{row['times_the_controller']:.0f} times the controller (goal {THROUGHPUT_GOAL:.0f})"
        )
    for task, row in results.get("curves", {}).items():
        runs = row["runs"]
        best = [run["best_ns"] / 1e9 for run in runs if run["best_ns"] is not None]
        if not best:
            lines.append(f"{task}: no feasible placement")
            continue
        name, baseline_ns = min(row["baselines_ns"].items(), key=lambda item: item[1])
        line = f"{task}: {statistics.median(best):.4g} s ({min(best):.4g} to {max(best):.4g}), "
        expert_ns = row["baselines_ns"].get("human_expert")
        if expert_ns:
            reduction = 1 - statistics.median(best) * 1e9 / expert_ns
            line += f"{reduction:.1%} below the expert, "
        line += f"best baseline {name} {baseline_ns / 1e9:.4g} s"
        line += f"; infeasible at last {max(r['infeasible_last_tenth'] for r in runs):.1%}"
        lines.append(line)
    for task, rows in results.get("effort", {}).items():
        ours = [row["hierarchical_ns"] for row in rows]
        random_won = sum(map(_wins, ours, [row["random_search_ns"] for row in rows]))
        grouped_won = sum(map(_wins, ours, [row["random_grouping_ns"] for row in rows]))
        lines.append(
            f"{task}: beats uniform random search in {random_won} of {len(rows)} seeds, "
            f"random grouping in {grouped_won}"
        )
    for preset, row in results.get("large", {}).items():
        lines.append(
            f"{row['ops']:,} ops, preset {preset}: {row['step_s']:.2f} s per policy step "
            f"(slowest {row['slowest_step_s']:.2f}, goal {_LARGE_STEP_S}), "
            f"{row['peak_bytes'] / 1e9:.2f} GB (goal {_LARGE_BYTES / 1e9:.0f})"
        )
    return "\n".join(lines)


def _wins(ours_ns: int | None, theirs_ns: int | None) -> bool:
    return ours_ns is not None and (theirs_ns is None or ours_ns < theirs_ns)


_RUN: dict[str, Callable[[argparse.Namespace, dict[str, Any]], dict[str, Any]]] = {
    "ablation": _ablation,
    "seconds": _seconds,
    "throughput": _throughput,
    "curves": _curves,
    "effort": _effort,
    "large": _large,
}

if __name__ == "__main__":
    raise SystemExit(main())
