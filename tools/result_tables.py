"""The tables on the pages of docs/results, from the JSON beside them.

tools/write_docs.py writes each into its page, between two marks that have its name.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"

# Of the executed placements, beside `auto` and what is no planner's.
_OTHER_PLANNERS = (
    *("rollout 0", "rollout 1", "human_expert", "scotch", "mincut", "metis", "etf", "heft"),
    "hierarchical",
)
_TITLES = {
    "inception_v3": "Inception-V3",
    "resnet_152": "ResNet-152",
    "rnnlm": "RNNLM",
    "nmt_2": "NMT, 2 layers",
    "nmt_4": "NMT, 4 layers",
    "nmt_8": "NMT, 8 layers",
    "transformer-8xa100": "Transformer, 8 A100",
    "bert_base-8xa100": "BERT base, 8 A100",
    "efficientnet_b0-8xa100": "EfficientNet-B0, 8 A100",
    "mobilenet_v2-8xa100": "MobileNet-V2, 8 A100",
    "two_tower-8xa100": "two-tower recommender, 8 A100",
    "two_tower": "two-tower recommender",
    "nmt": "NMT, 2 layers",
}


def read(file: str) -> Any:
    """A JSON or YAML file of docs/results."""
    text = (RESULTS / file).read_text()
    return json.loads(text) if file.endswith(".json") else yaml.safe_load(text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _title(task: str) -> str:
    return _TITLES.get(task, task.replace("_", " "))


def _model(task: str) -> str:
    """The same without the machine of the task, where it ran on another one."""
    return _title(task).removesuffix(", 8 A100")


def _ms(ns: float | None) -> str:
    return "does not fit" if ns is None else f"{ns / 1e6:.4g}"


def _least(steps_ns: Iterable[float | None]) -> float:
    return min(ns for ns in steps_ns if ns is not None)


# ---- two workers ----


def predictions() -> str:
    """A row per graph: how near predicted steps come to measured ones."""
    found = read("prediction/prediction.json")

    def row(name: str, of: Mapping[str, Any]) -> list[str]:
        again = of["again"]
        return [
            name,
            str(of["placements"]),
            f"{of['rank_correlation']:.2f}, {again['rank_correlation']:.2f}",
            f"{of['median_error']:.0%}, {again['median_error']:.0%}",
            f"{of['most_optimistic_plan']:+.0%}, {again['most_optimistic_plan']:+.0%}",
            f"{again['apart']:.0%}",
        ]

    rows = [row(_title(task), of) for task, of in found["tasks"].items()]
    head = ["graph", "placements", "rank correlation", "median error", "plan of `auto`", "apart"]
    return table(head, [*rows, row("all", found["all"])])


def prediction_parts() -> str:
    """A row per part of the model that is left out: how wrong predictions are then."""
    predictions = read("prediction/prediction.json")["predictions"]

    def row(name: str, error_of: Callable[[Mapping[str, Any]], float]) -> list[str]:
        errors = {(of["task"], of["placement"]): error_of(of) for of in predictions}
        too_large = [
            (1 + errors[task, "worker 0"]) / (1 + error) - 1
            for (task, placement), error in errors.items()
            if placement != "worker 0"
        ]
        plans = [error for (_, placement), error in errors.items() if placement == "auto"]
        return [
            name,
            f"{np.median(np.abs(list(errors.values()))):.1%}",
            f"{sum(error < -0.15 for error in plans)} of {len(plans)}, the worst {min(plans):+.0%}",
            f"{np.percentile(too_large, 95):.2f}",
        ]

    whole = row("the whole model", lambda of: of["error"])
    parts = [
        row(f"without {part}", lambda of, part=part: of["error_without"][part])
        for part in predictions[0]["error_without"]
    ]
    head = ["", "median error", "plans of `auto` more than 15% too fast", "gains too large"]
    return table(head, [whole, *parts])


def cluster() -> str:
    """A row per graph: measured placements, as times as fast as TensorFlow's."""
    rows = [
        [
            _title(task),
            *(f"{of[name]['speedup']:.2f}" for name in ("by hand", "planned")),
            f"{of['default']['predicted_ns'] / of['planned']['predicted_ns']:.2f}",
            f"{of['refined']['speedup']:.2f}",
        ]
        for task, of in read("cluster/cluster.json")["tasks"].items()
    ]
    return table(["graph", "by hand", "plan of `auto`", "predicted", "refined"], rows)


# ---- the guard ----


def guarded_plans(costs: str) -> list[tuple[float, bool]]:
    """Of the plans with these costs: times as fast as measured, and whether it is in effect."""
    lines = (RESULTS / "guard/table.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    return [(float(row[6]), row[8] == "yes") for row in cells if len(row) == 9 and row[2] == costs]


def guard() -> str:
    """Measured beside estimated costs: what plans gain, with and without the guard."""
    of_costs = []
    for costs in ("measured", "estimated"):
        mine = guarded_plans(costs)
        speedups, used = (
            [speedup for speedup, _ in mine],
            [speedup for speedup, is_used in mine if is_used],
        )
        slower = [speedup for speedup in speedups if speedup < 1 / 1.03]
        paying = [is_used for speedup, is_used in mine if speedup >= 1.1]
        of_costs.append(
            [
                f"{len(slower)} of {len(mine)}, the worst at {min(speedups):.2f} times its speed",
                f"{len(paying)}, the best at {max(speedups):.2f} times its speed",
                f"{len(used)}, at {min(used):.2f} to {max(used):.2f} times its speed",
                f"{sum(paying)} of {len(paying)}",
                f"{_optimism(costs):.2f}",
            ]
        )
    names = (
        "plans more than 3% slower than TensorFlow's placement",
        "plans at least 10% faster",
        "plans in effect",
        "of the plans at least 10% faster, in effect",
        "gains predicted too large, at the 95th percentile",
    )
    return table(["", "measured costs", "estimated costs"], zip(names, *of_costs, strict=True))


def _optimism(costs: str) -> float:
    """Predicted over measured speedup, less 1, at the 95th percentile."""
    found = [
        row["predicted_speedup"] / row["speedup"] - 1
        for row in read("guard/guard.json")["rows"]
        if row["costs"] == costs
    ]
    return float(np.percentile(found, 95))


# ---- planners ----


def autos() -> str:
    """A row per task: `auto` in short and in its own time, over what does not search."""
    found = read("rollout/rollout.json")
    columns = (
        ("rollout", "rollout"),
        ("without", "without, short"),
        ("auto", "auto, short"),
        ("auto", "auto"),
        ("busy", "busy"),
    )
    rows, ratios = [], []
    for task in found["without"]:
        best = _least(found["rollout"][task]["quick"].values())
        ratio = [statistics.median(found[part][task][row]) / best for part, row in columns]
        ratios.append(ratio)
        rows.append([_title(task), f"{best / 1e6:.1f}", *(f"{value:.2f}" for value in ratio)])
    means = np.exp(np.log(ratios).mean(axis=0))
    rows.append(["geometric mean", "", *(f"{value:.2f}" for value in means)])
    head = ["task", "best without search, ms", "`rollout`", "no rollouts, short", "`auto`, short"]
    return table([*head, "`auto`", "`auto`, busy cores"], rows)


def rollout_parts() -> str:
    """A row per way to build rollouts, over the best planner that does not search."""
    found = read("rollout/rollout.json")["rollout"]
    tasks, generated = (
        {task: of for task, of in found.items() if (task in _TITLES) == is_task}
        for is_task in (True, False)
    )

    def cell(problems: Mapping[str, Any], variant: str) -> str:
        ratios = [
            statistics.median(of[variant]) / _least(of["quick"].values())
            for of in problems.values()
            if None not in of[variant] and any(of["quick"].values())
        ]
        return f"{statistics.geometric_mean(ratios):.3f}"

    variants = (
        "rollout",
        "one pass",
        "units alone",
        "all chains",
        "no sweeps",
        "earliest finish alone",
    )
    rows = [[name, cell(tasks, name), cell(generated, name)] for name in variants]
    return table(["", f"{len(tasks)} tasks", f"{len(generated)} generated problems"], rows)


def robust() -> str:
    """Mean steps over drawn costs, as shares of that of what search found."""
    found = read("robustness/robustness.json")
    names = {
        "moved": "as many moves, by the costs as they stand",
        "settled": "moves that do not pay taken back, by the costs as they stand",
        "robust": "made robust against errors of measured costs",
        "auto": "and moves that do not pay taken back, by the mean step: `auto`",
    }
    rows = [
        [
            text,
            *(
                f"{mean['mean']:.3f}, {mean['worst']:.3f}"
                for mean in (found["means"][costs][name] for costs in ("measured", "analytic"))
            ),
            f"{statistics.mean(row['as the costs stand'][name] for row in found['rows']):.3f}",
        ]
        for name, text in names.items()
    ]
    head = ["", "errors of measured costs", "errors of estimated costs", "costs as they stand"]
    return table(head, rows)


def paper() -> str:
    """Seconds per step of the papers' tasks, beside what was published."""
    learned = read("learning/learning.json")
    planners = (
        "cpu_only",
        "gpu_only",
        "human_expert",
        "scotch",
        "mincut",
        "metis",
        "etf",
        "heft",
        "auto",
    )
    rows = []
    for task in read("paper/results.json")["tasks"]:
        steps = {
            row["planner"]: row["step_time_ns"] if row["cells"][0]["feasible"] else None
            for row in task["planners"]
        }
        drawn = statistics.median(
            run["best_ns"] for run in learned[task["name"]]["runs"]["hierarchical"]
        )
        every = [*(steps[name] for name in planners), drawn, task["facts"]["lower_bound_ns"]]
        every.append(task["published_ns"]["hierarchical:paper"])
        rows.append(
            [_title(task["name"]), *("–" if ns is None else f"{ns / 1e9:.3g}" for ns in every)]
        )
    head = ["", "CPU", "GPU", "expert", "Scotch", "MinCut", "METIS", "m-ETF", "HEFT", "`auto`"]
    return table([*head, "`hierarchical`", "lower bound", "published"], rows)


def paper_devices() -> str:
    """Steps on one device: published, and on the fitted machine."""
    rows = []
    for planner, device in (("cpu_only", "CPU"), ("gpu_only", "GPU")):
        for task in read("paper/results.json")["tasks"]:
            row = next(row for row in task["planners"] if row["planner"] == planner)
            published = task["published_ns"].get(planner)
            if published is None or not row["cells"][0]["feasible"]:
                continue
            simulated = row["step_time_ns"]
            cells = [f"{published / 1e9:.2f}", f"{simulated / 1e9:.2f}"]
            rows.append(
                [f"{_title(task['name'])}, {device}", *cells, f"{simulated / published - 1:+.0%}"]
            )
    return table(["step on one device", "published, s", "simulated, s", "apart"], rows)


def planning_time() -> str:
    """Seconds that each planner took on the smallest and the largest of the papers' tasks."""
    tasks = {task["name"]: task for task in read("paper/results.json")["tasks"]}
    names = ("inception_v3", "nmt_8")
    head = [
        f"{_title(name)}: {facts['num_ops']:,} ops, {len(facts['device_names'])} devices"
        for name, facts in ((name, tasks[name]["facts"]) for name in names)
    ]
    seconds = [
        {row["planner"]: row["cells"][0]["planning_s"] for row in tasks[name]["planners"]}
        for name in names
    ]
    rows = [[f"`{name}`", *(f"{of[name]:.2f}" for of in seconds)] for name in seconds[0]]
    return table(["planner, s", *head], rows)


# ---- learning ----


def learning() -> str:
    """A row per task: what `hierarchical` draws, in medians of seeds."""
    rows = []
    for task, of in read("learning/learning.json").items():
        runs, rivals = of["runs"]["hierarchical"], of["rivals"]
        best, last, fresh = (
            statistics.median(run[key] for run in runs)
            for key in ("best_ns", "last_ns", "fresh_ns")
        )
        rival, seeds = _least(rivals.values()), [run["best_ns"] for run in runs]
        cells = [
            _ms(ns) for ns in (rivals["gpu_only"], rivals["human_expert"], rival, best, last, fresh)
        ]
        cells += [f"{ratio:.2f}" for ratio in (best / rival, last / rival, max(seeds) / min(seeds))]
        rows.append([_title(task), *cells])
    head = ["task", "one GPU", "expert", "best of 7", "best draw", "last tenth", "fresh draws"]
    ratios = ["best draw / best of 7", "last tenth / best of 7", "seeds: highest / lowest"]
    return table([*head, *ratios], rows)


def ablation() -> str:
    """A row per part that is left out: best draw and last tenth over those of `hierarchical`."""
    found = {task: of["runs"] for task, of in read("learning/learning.json").items()}
    tasks = [task for task in found if len(found[task]) > 3]  # all kinds were run
    kinds = [kind for kind in found[tasks[0]] if kind != "hierarchical"]

    def cell(runs: Mapping[str, Any], kind: str) -> str:
        if kind not in runs:
            return "–"
        base = {run["seed"]: run for run in runs["hierarchical"]}
        ratios = [
            statistics.mean(run[key] / base[run["seed"]][key] for run in runs[kind])
            for key in ("best_ns", "last_ns")
        ]
        return ", ".join(f"{ratio:.2f}" for ratio in ratios)

    rows = [[kind, *(cell(found[task], kind) for task in tasks)] for kind in kinds]
    return table(["left out", *map(_title, tasks)], rows)


def in_auto() -> str:
    """A row per task: `auto` in ten seconds with and without its ways to get away, in ms."""
    parts = {
        "neither": "search alone",
        "auto": "`auto`: both",
        "no learner": "no learner",
        "no race": "no race",
    }
    rows, of_parts = [], []
    for task, of in read("search/parts/search.json")["parts"].items():
        steps = {part: sorted(ns for ns, _ in of["10"][part]) for part in parts}
        of_parts.append([statistics.geometric_mean(steps[part]) for part in parts])
        cells = [", ".join(f"{ns / 1e6:.4g}" for ns in steps[part]) for part in parts]
        rows.append([_title(task), *cells])
    means = np.exp(np.log(of_parts).mean(axis=0))
    rows.append(["geometric mean of ratios", *(f"{mean / means[0]:.3f}" for mean in means)])
    return table(["10 s", *parts.values()], rows)


def drawn() -> str:
    """Answers of searches by measured steps, over that of one that knows the true costs."""
    found = read("measured_search/measured_search.json")["drawn"]
    names = {
        "first": "first placement: the simulator's best",
        "moves only": "moves only",
        "without learning": "without learning",
        "learning": "learning",
    }
    columns = []
    head = [""]
    for costs in ("measured", "estimated"):
        rows = [of for name, of in found.items() if name.endswith(f", {costs}")]
        whole = [of for of in rows if all(of[name] for name in ("knowing", *names))]
        head.append(f"errors of {costs} costs, {len(whole)} problems")
        columns.append(
            [
                f"{statistics.geometric_mean(of[name] / of['knowing'] for of in whole):.3f}"
                for name in names
            ]
        )
    return table(head, zip(names.values(), *columns, strict=True))


def measured_workers() -> str:
    """Answers of searches on two workers, as times as fast as one worker; a figure per seed."""
    found = {
        f"{_title(task)}{starts}": of
        for file, starts in (("", ""), ("auto/", ", starts of `auto`"))
        for task, of in read(f"measured_search/{file}measured_search.json")["workers"].items()
    }

    def cell(answers: Mapping[str, Any], name: str) -> str:
        return ", ".join(
            f"{of['speedup']:.2f}"
            for answer, of in answers.items()
            if answer.split(", seed")[0] == name
        )

    names = ("by hand", "learning", "without learning", "moves only")
    rows = [[name, *(cell(of["answers"], name) for of in found.values())] for name in names]
    return table(["", *found], rows)


# ---- advice ----


def ways() -> str:
    """A row per graph: measured and predicted steps of three ways to use two workers, in ms."""
    rows = read("advise/measured.yaml")["rows"]
    ways = {"one device": "one worker", "plan": "plan", "data parallelism": "data parallelism"}
    lines = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        of = {row["way"]: row for row in rows if row["graph"] == graph}
        best, said = (
            min(of, key=lambda way: of[way][key]) for key in ("measured_s", "predicted_s")
        )
        cells = [
            f"{of[way]['measured_s'] * 1e3:.2f} ({of[way]['predicted_s'] * 1e3:.2f})"
            for way in ways
        ]
        lines.append([graph, str(of["plan"]["batch_size"]), *cells, ways[best], ways[said]])
    head = ["graph", "batch", *ways.values(), "best", "best by `advise`"]
    return table(head, lines)


def neighbours() -> str:
    """A row per kind of op: how many times as long it takes beside a busy neighbour."""
    rows = []
    for kind, losses in read("neighbours/neighbours.json").items():
        low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75))
        rows.append([kind, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"])
    return table(["kind of op", "times as long", "half of the turns"], rows)


def idle_threads() -> str:
    """A row per graph: how many times as long its steps are if idle threads spin."""
    rows = []
    for graph, placements in read("idle-threads/idle_threads.json").items():
        cells = []
        for steps in placements.values():
            longer = np.divide(steps["spinning"], steps["asleep"])
            low, middle, high = np.quantile(longer, (0.25, 0.5, 0.75))
            cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
        rows.append([graph, *cells])
    return table(["graph", "on one worker", "cut in the middle"], rows)


def starts() -> str:
    """A row per script: seconds to the first step, and how much later that is than without."""
    rows = []
    for script, of in read("trials/starts.json").items():
        own = of["without"]
        cells = []
        for kind in ("first", "second"):
            later = statistics.median(of[kind]) - statistics.median(own)
            pairs = [one - other for one, other in zip(of[kind], own, strict=True)]
            cells += [f"{later:+.2f}", f"{statistics.median(pairs):+.2f}"]
        spread = f"{min(own):.1f} to {max(own):.1f}"
        rows.append([f"`{script}`", f"{statistics.median(own):.2f}", spread, *cells])
    head = ["script", "without, s", "spread", "first start", "in pairs", "second start", "in pairs"]
    return table(head, rows)


def trials_on_workers() -> str:
    """A row per graph on two workers: whether its plan pays, and is in effect in the end."""
    rows = [
        [
            of["graph"],
            f"{1e3 * of['alone_s']:.2f}",
            f"{of['speedup']:.2f} ({of['low']:.2f} to {of['high']:.2f})",
            f"{of['predicted']:.2f}",
            "in effect" if of["guard"] else "not in effect",
            "in effect" if of["trial"]["in_effect"] else "not in effect",
            f"{of['trial']['charged_s'] / of['trial']['train_s']:.1%}",
        ]
        for of in read("trials/measured.json")
    ]
    head = ["graph", "TensorFlow's step, ms", "times as fast with the plan", "predicted"]
    return table([*head, "guard alone", "trial", "of the run"], rows)


def trials_emulated() -> str:
    """A row per training on emulated GPUs: whether its plan is in effect in the end."""

    def end(of: Mapping[str, Any]) -> str:
        share = of.get("charged_s", 0.0) / of.get("lasted_s", 1.0)
        told = "in effect" if of["in_effect"] else "not in effect"
        return f"{told}, {share:.1%}" if "lasted_s" in of else told

    rows = [
        [
            of["model"],
            of["machine"].removeprefix("1cpu-").replace("xk40", " K40"),
            {"plan": "of `auto`", "stripes": "stripes"}[of["plan"]],
            *(f"{of[name]:.2f}" for name in ("speedup", "predicted")),
            *(end(of[kind]) for kind in ("guard", "trial", "no drop", "fixed")),
        ]
        for of in read("trials/emulated.json")
    ]
    head = ["model", "GPUs", "plan", "times as fast", "predicted", "guard alone", "trial"]
    return table([*head, "no early drop", "100 steps a side"], rows)


# ---- emulated GPUs ----


def agreement() -> str:
    """A row per task: how near simulated steps come to executed ones."""
    head = ["task", "placements", "median error", "largest", "plans of `auto` are longer by"]
    head += ["pairs ordered right", "without rules of launches: median error, largest"]
    tasks = read("emulation/agreement.json")
    rows = []
    for task, of in tasks.items():
        ran = [row for row in of if "error" not in row]
        rows.append([_title(task), *_agreement(ran), ", ".join(_errors(ran, "ignored_ns"))])
    return table(head, rows)


def drawn_agreement() -> str:
    """The same, a row per graph that was drawn and is worth distributing; and what plans gain."""
    head = ["graph and machine", "placements", "median error", "largest"]
    head += ["plans of `auto` are longer by", "pairs ordered right"]
    rows = []
    for name, of in read("emulation/drawn.json").items():
        ran = [row for row in of if "step_ns" in row]
        if ran:
            rows.append([name, *_agreement(ran)])
    return table(head, rows)


def drawn_gains() -> str:
    """A row per such graph, as of `executed_gains`."""
    return _gains("graph and machine", read("emulation/drawn.json"))


def _agreement(ran: Sequence[Mapping[str, Any]]) -> list[str]:
    autos = [
        f"{row['step_ns'] / row['simulated_ns'] - 1:+.1%}"
        for row in ran
        if row["placement"].startswith("auto")
    ]
    return [str(len(ran)), *_errors(ran, "simulated_ns"), ", ".join(autos), _ordered_right(ran)]


def _ordered_right(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of pairs of placements whose executed steps differ by more than 3%."""
    pairs = [
        (one, other)
        for one, other in itertools.combinations(rows, 2)
        if abs(one["step_ns"] / other["step_ns"] - 1) > 0.03
    ]
    right = [
        (one["step_ns"] > other["step_ns"]) == (one["simulated_ns"] > other["simulated_ns"])
        for one, other in pairs
    ]
    return f"{sum(right)} of {len(pairs)}"


def _errors(rows: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Of simulated steps: the median and the largest."""
    errors = [abs(row[key] / row["step_ns"] - 1) for row in rows]
    return [f"{statistics.median(errors):.1%}", f"{max(errors):.1%}"]


def gains_of(rows: Sequence[Mapping[str, Any]], planner: str, key: str = "step_ns") -> list[float]:
    """How many times as fast as TensorFlow's placement its plans are, by this key."""
    ran = {row["placement"]: row[key] for row in rows if "step_ns" in row}
    return [ran["TensorFlow's"] / step for name, step in ran.items() if name.startswith(planner)]


def executed_gains() -> str:
    """A row per task: how many times as fast plans are as TensorFlow's placement, executed."""
    tasks = read("emulation/agreement.json")
    return _gains("task", {_title(task): of for task, of in tasks.items()})


def _gains(what: str, placed: Mapping[str, Any]) -> str:
    rows = []
    for title, of in placed.items():
        steps_ns = {row["placement"]: row["step_ns"] for row in of if "step_ns" in row}
        if "TensorFlow's" not in steps_ns:
            continue
        own_ns = steps_ns["TensorFlow's"]
        others = {name: ns for name, ns in steps_ns.items() if name in _OTHER_PLANNERS}
        best = min(others, key=lambda name: others[name], default="")
        rows.append(
            [
                title,
                f"{own_ns / 1e6:.1f}",
                _list(gains_of(of, "auto")),
                _list(gains_of(of, "auto", "simulated_ns")),
                _list(gains_of(of, "one start")),
                _list(gains_of(of, "launches ignored")),
                f"{own_ns / others[best]:.2f}, {best}" if best else "",
            ]
        )
    head = [what, "TensorFlow's, ms", "`auto`: times as fast", "predicted", "one start"]
    return table([*head, "launches ignored", "best of the other planners"], rows)


def _list(gains: Sequence[float]) -> str:
    return ", ".join(f"{gain:.2f}" for gain in gains)


def emulated_memory() -> str:
    """A row per task: what steps took of memory and of real time."""
    rows = []
    for task, of in read("emulation/agreement.json").items():
        ran = [row for row in of if "error" not in row]
        held = []
        for row in ran:
            peaks, simulated = (
                np.array(row[key], float) for key in ("peak_bytes", "simulated_peak_bytes")
            )
            is_full = peaks * 2 >= peaks.max()
            held += list(peaks[is_full] / np.maximum(simulated[is_full], 1))
        real_s = [row["real_s"] for row in ran]
        size = max(row["process_gib"] for row in ran)
        rows.append(
            [
                _title(task),
                f"{len(ran)} of {len(of)}",
                f"{min(held):.2f} to {max(held):.2f}",
                f"{min(real_s):.2f} to {max(real_s):.2f}",
                f"{size:.1f}",
            ]
        )
    head = ["task", "placements that fit", "memory over simulated", "real s a step", "process, GiB"]
    return table(head, rows)


# ---- a real GPU ----


def gpu_steps() -> str:
    """A row per task on one GPU, in ms."""
    rows = []
    for task, of in read("accelerators/h200.json")["tasks"].items():
        tf32, float32 = (
            float(np.mean(of["executed_ms"][name])) for name in ("TensorFlow's", "without TF32")
        )
        simulated = of["simulated_ms"]
        cells = [tf32, float32, simulated, of["kernels_by_data_sheet_ms"], of.get("kernels_ms")]
        told = ["" if cell is None else f"{cell:.1f}" for cell in cells]
        rows.append([_model(task), *told[:3], f"{tf32 / simulated:.2f}", *told[3:]])
    head = ["task", "executed", "without TF32", "simulated", "executed / simulated"]
    return table([*head, "kernels, data sheet", "kernels, traced"], rows)


def gpu_placements() -> str:
    """A row per placement with ops on the CPU, in ms."""
    rows = [
        [
            _model(of["task"]),
            of["moved"],
            *(
                f"{of[name]:.1f}"
                for name in ("executed_ms", "data_sheet_ms", "measured_kernels_ms")
            ),
        ]
        for of in read("accelerators/h200.json")["placements"]
    ]
    return table(["task", "moved", "executed", "data sheet", "measured kernels"], rows)


def gpus() -> str:
    """A row per placement on one GPU and on two logical ones, in ms."""
    rows = []
    for of in read("accelerators/h200_two.json")["placements"]:
        if of["placement"] == "without TF32":
            continue
        executed = of["executed_ms"]
        shares = [executed / of[name] for name in ("data_sheet_ms", "measured_kernels_ms")]
        told = [f"{executed:.1f}", *(f"{share:.2f}" for share in shares)]
        rows.append([_model(of["task"]), str(of["gpus"]), of["placement"], *told])
    head = ["task", "GPUs", "placement", "executed", "/ data sheet", "/ measured kernels"]
    return table(head, rows)


def gpu_traces() -> str:
    """A row per traced step with ops on the CPU."""
    rows = [
        [
            _model(of["task"]),
            of["moved"],
            f"{of['cpu_ops']:,}",
            f"{of['traced_ms']:.1f}",
            f"{of['estimated_ms']:.1f}",
            f"{of['median_ratio']:.1f}",
            *(
                ", ".join(str(us) for us in of[name])
                for name in ("before_copy_us", "copied_us", "hop_us")
            ),
        ]
        for of in read("accelerators/h200.json")["traced"]
    ]
    head = ["task", "moved", "ops on the CPU", "they took, ms", "estimated, ms", "median ratio"]
    return table([*head, "before a copy, us", "copy, us", "hop, us"], rows)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "predictions": ("two-workers.md", predictions),
    "prediction-parts": ("two-workers.md", prediction_parts),
    "cluster": ("two-workers.md", cluster),
    "guard": ("guard.md", guard),
    "autos": ("planners.md", autos),
    "rollouts": ("planners.md", rollout_parts),
    "robust": ("planners.md", robust),
    "paper": ("paper.md", paper),
    "paper-devices": ("paper.md", paper_devices),
    "planning": ("optimizer.md", planning_time),
    "learning": ("learning.md", learning),
    "ablation": ("learning.md", ablation),
    "in-auto": ("learning.md", in_auto),
    "drawn": ("learning.md", drawn),
    "measured-workers": ("learning.md", measured_workers),
    "ways": ("advice.md", ways),
    "neighbours": ("two-workers.md", neighbours),
    "idle-threads": ("two-workers.md", idle_threads),
    "starts": ("guard.md", starts),
    "trials-workers": ("guard.md", trials_on_workers),
    "trials-emulated": ("guard.md", trials_emulated),
    "agreement": ("emulation.md", agreement),
    "drawn-agreement": ("emulation.md", drawn_agreement),
    "drawn-executed": ("emulation.md", drawn_gains),
    "executed": ("emulation.md", executed_gains),
    "emulated-memory": ("emulation.md", emulated_memory),
    "gpu-steps": ("accelerators.md", gpu_steps),
    "gpus": ("accelerators.md", gpus),
    "gpu-placements": ("accelerators.md", gpu_placements),
    "gpu-traces": ("accelerators.md", gpu_traces),
}
"""The page of each table, and what makes it."""
