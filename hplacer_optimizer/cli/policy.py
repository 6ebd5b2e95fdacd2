"""`hplacer policy`: policies of rollouts, trained, compared and shown."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.generated import generate
from hplacer_optimizer.cli.arguments import (
    OK,
    add_budget,
    add_command,
    add_json,
    add_output,
    add_seed,
    count,
    output_directory,
)
from hplacer_optimizer.cli.interruption import Interruption
from hplacer_optimizer.cli.parser import advanced
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.tables import print_line, print_table
from hplacer_optimizer.errors import PolicyError
from hplacer_optimizer.log import warn_once
from hplacer_optimizer.planners.native_search import cores
from hplacer_optimizer.planners.policies import Portfolio, load_portfolio, save_portfolio, trained
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.problem.files import load_problem_file
from hplacer_optimizer.training import evaluation, problems, selection
from hplacer_optimizer.training.checkpoint import Checkpoint

_FIRST_SEED = 1000  # of generated problems to compare on
_SHOWN_WEIGHTS = 4
_CHOSEN_ON = 2  # generated problems of each family that rivals choose their chains on

_TRAIN_EXAMPLES = """\
examples:
  hplacer policy train -o policies.yaml --budget 30m
  hplacer policy train -o policies.yaml --budget 2h --seed 1 --leave-out recurrent
  hplacer policy train -o policies.yaml --problem model.hplacer.json --problem other.hplacer.json
  hplacer policy train -o policies.yaml --store /shared/plans
  hplacer plan model.meta --machine 8xa100 --planner rollout:policies.yaml

Ctrl-C chooses of what there is, and writes the file (exit code 130). A run that was stopped goes on
where it is called again with the same options: what it needs lies beside the file.
"""
_EVALUATE_EXAMPLES = """\
examples:
  hplacer policy evaluate
  hplacer policy evaluate policies.yaml --generated 4 --family recurrent --seeds 3
  hplacer policy evaluate policies.yaml --problem model.hplacer.json
  hplacer policy evaluate policies.yaml --store ~/.cache/hplacer
"""


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    text = "train, compare and show the policies of rollouts"
    policy = commands.add_parser("policy", help=text, epilog="example: hplacer policy show")
    actions = policy.add_subparsers(metavar="ACTION", required=True)

    text = "train policies on many problems, and write a policy file"
    train = add_command(actions, "train", _train, text, _TRAIN_EXAMPLES)
    add_output(train, "the policy file (YAML) to write")
    text = "of the evolution, as 90s, 10m or 1h30m; the choice at the end takes some minutes more"
    add_budget(train, f"{text} (default: 30m)", "30m")
    add_seed(train)
    train.add_argument(
        "--leave-out",
        action="append",
        default=[],
        choices=problems.FAMILIES,
        metavar="FAMILY",
        help=f"train without it; may be repeated: {', '.join(problems.FAMILIES)}",
    )
    train.add_argument(
        "--generated",
        type=count,
        default=12,
        metavar="N",
        help="generated problems of each family (default: 12)",
    )
    _add_problems(train, "train on")
    train.add_argument(
        "--problems",
        type=output_directory,
        metavar="DIR",
        help="keep problem files of captured graphs here (default: beside the output)",
    )
    add_json(train)

    text = "compare a policy file with policies set by hand, earliest finish and random weights"
    evaluate = add_command(actions, "evaluate", _evaluate, text, _EVALUATE_EXAMPLES)
    _add_file(evaluate)
    evaluate.add_argument(
        "--generated",
        type=count,
        default=2,
        metavar="N",
        help="generated problems of each family that training never sees (default: 2)",
    )
    evaluate.add_argument(
        "--family",
        action="append",
        choices=problems.FAMILIES,
        metavar="FAMILY",
        help="only this family; may be repeated",
    )
    evaluate.add_argument(
        "--seeds", type=count, default=1, metavar="N", help="of sweeps: 0 to N-1 (default: 1)"
    )
    _add_problems(evaluate, "compare on")
    add_json(evaluate)

    text = "show what is in a policy file, and how it was made"
    show = add_command(actions, "show", _show, text, "hplacer policy show policies.yaml")
    _add_file(show)
    add_json(show)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="default: the policies that are shipped"
    )


def _add_problems(parser: argparse.ArgumentParser, verb: str) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--problem",
        action="append",
        type=Path,
        metavar="FILE",
        help=f"{verb} this problem file instead; may be repeated (docs/reference/problem-file.md)",
    )
    either.add_argument(
        "--store",
        metavar="DIR",
        help=f"{verb} the problems of the plans in this plan store instead: a directory, an "
        "address such as gs://bucket/plans, or several with ; between them",
    )
    advanced(parser).add_argument(
        "--trust-shared", action="store_true", help="read a store that others can write, too"
    )


def _load(options: argparse.Namespace) -> Portfolio:
    return trained() if options.file is None else load_portfolio(options.file)


# ---- train ----


def _train(options: argparse.Namespace) -> int:
    begin_s = time.monotonic()
    command = f"hplacer policy train {shlex.join(_meaning(options))}"
    output = Path(options.output)
    interruption = Interruption()
    with interruption.watched(), _bar() as show:
        used = _training_problems(options, show)
        checkpoint = Checkpoint(output, command)

        def on_progress(progress: selection.Progress) -> bool:
            show(
                f"policy {progress.stage + 1} of {selection.STAGES}, generation "
                f"{progress.generation}: {np.exp(progress.mean):.3f}",
                progress.share_done,
            )
            return not interruption.stop.is_set()

        portfolio = selection.train(
            used,
            seconds=options.budget,
            seed=options.seed,
            done=checkpoint.read(),
            on_progress=on_progress,
            on_stage=checkpoint.add,
        )
    devices = [one.problem.num_devices for one in used]
    training = {
        "command": command,
        "problems": f"{len(used)}, on {min(devices)} to {max(devices)} devices",
        "hours": f"{(time.monotonic() - begin_s) / 3600:.2f} on {cores()} cores",
    }
    save_portfolio(replace(portfolio, training=training), output)
    if not interruption.signal:
        checkpoint.remove()
    if options.json:
        print_json({"output": options.output} | _document(portfolio))
    else:
        counts = f"{len(portfolio.policies)} policies, {len(portfolio.chains)} chains"
        print(f"{counts}: {options.output}")
    return interruption.exit_code


def _meaning(options: argparse.Namespace) -> list[str]:
    """The arguments that decide what is trained."""
    arguments = ["--budget", f"{options.budget:.0f}s", "--seed", str(options.seed)]
    if options.problem:
        return arguments + [f"--problem={path.name}" for path in options.problem]
    if options.store:
        return [*arguments, f"--store={options.store}"]
    arguments += ["--generated", str(options.generated)]
    return arguments + [f"--leave-out={family}" for family in sorted(options.leave_out)]


def _training_problems(
    options: argparse.Namespace, show: Callable[[str, float], None]
) -> list[problems.TrainingProblem]:
    def on_problem(name: str) -> None:
        show(f"problem {name}", 0.0)

    if given := _given_problems(options):
        found = problems.usable(given, on_problem=on_problem)
    else:
        found = problems.training_set(
            options.problems or Path(options.output).parent / "hplacer-training-problems",
            generated=options.generated,
            leave_out=options.leave_out,
            on_problem=on_problem,
        )
    if not found:
        raise PolicyError("there is no problem to train on that fits the memories of its devices")
    return found


def _given_problems(options: argparse.Namespace) -> list[tuple[str, Problem]]:
    """Those of --problem or --store; none if neither is given."""
    if options.problem:
        return [(path.name, load_problem_file(path)) for path in options.problem]
    if not options.store:
        return []
    store = PlanStore(options.store, trust_shared=options.trust_shared)
    found = [*problems.stored(store, on_left_out=lambda why: warn_once(why, f"left out: {why}"))]
    if not found:
        raise PolicyError(
            f"--store: no plan in {options.store} holds a problem; `hplacer pretrain --cache "
            f"{options.store}` makes plans that do"
        )
    return found


@contextmanager
def _bar() -> Iterator[Callable[[str, float], None]]:
    """A function of a text and a share that moves a bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=1.0)
        yield lambda text, share: progress.update(bar, description=text, completed=share)


# ---- evaluate ----


def _evaluate(options: argparse.Namespace) -> int:
    mine = _load(options)
    compared = _comparison_problems(options)
    chosen_on = problems.usable(
        (f"{family}-{seed}", generate(generated, seed))
        for family, (generated, _) in problems.FAMILIES.items()
        for seed in range(problems.FIRST_SEED, problems.FIRST_SEED + _CHOSEN_ON)
    )
    portfolios = {"trained": mine, **evaluation.rivals(chosen_on)}
    found: dict[str, dict[str, dict[str, float]]] = {}
    with _bar() as show:
        for i, (name, problem) in enumerate(compared):
            show(name, i / len(compared))
            found[name] = evaluation.compare(problem, portfolios, seeds=range(options.seeds))
    if options.json:
        print_json(
            {"step_time_ns": {name: evaluation.as_json(rows) for name, rows in found.items()}}
        )
        return OK
    table = [
        [name, effort, *(_ms(steps[row][effort]) for row in portfolios)]
        for name, steps in found.items()
        for effort in evaluation.EFFORTS
    ]
    print_table(["problem", "ms per step", *portfolios], table)
    summary = []
    for effort in evaluation.EFFORTS:
        trained_ns = [steps["trained"][effort] for steps in found.values()]
        ratios = [
            evaluation.mean_ratio(trained_ns, [steps[row][effort] for steps in found.values()])
            for row in portfolios
        ]
        summary.append([effort, *(f"{ratio:.3f}" for ratio in ratios)])
    print_table(["trained over, geometric mean", *portfolios], summary)
    return OK


def _comparison_problems(options: argparse.Namespace) -> list[tuple[str, Problem]]:
    return _given_problems(options) or [
        (f"{family}-{seed}", generate(problems.FAMILIES[family][0], seed))
        for family in options.family or problems.FAMILIES
        for seed in range(_FIRST_SEED, _FIRST_SEED + options.generated)
    ]


def _ms(step_ns: float) -> str:
    return f"{step_ns / 1e6:.3f}" if np.isfinite(step_ns) else "does not fit"


# ---- show ----


def _document(portfolio: Portfolio) -> dict[str, Any]:
    return {
        "policies": [asdict(policy) for policy in portfolio.policies],
        "chains": [{"policy": policy, "items": items} for policy, items in portfolio.chains],
        "training": dict(portfolio.training),
    }


def _show(options: argparse.Namespace) -> int:
    portfolio = _load(options)
    if options.json:
        print_json(_document(portfolio))
        return OK
    for key, value in portfolio.training.items():
        print_line(f"{key}: {value}")
    rows = []
    for i, (index, items) in enumerate(portfolio.chains):
        policy = portfolio.policies[index]
        largest = sorted(policy.weights.items(), key=lambda pair: -abs(pair[1]))[:_SHOWN_WEIGHTS]
        order = "lazy" if policy.is_lazy else "eager"
        weights = ", ".join(f"{name} {weight:.3g}" for name, weight in largest)
        rows.append([str(i + 1), items, f"{index}, {order}", weights])
    print_table(["chain", "decides", "policy", "largest weights"], rows)
    return OK
