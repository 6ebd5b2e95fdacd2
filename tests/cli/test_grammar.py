"""What holds for every command: help with an example, JSON in one vocabulary, errors that help."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer import cli
from hplacer_optimizer.planners import PLANNERS
from hplacer_optimizer.plans.store import PlanStore
from tests.plans.test_plan import FINGERPRINT, make_plan
from tests.processes import ROOT

GOLDEN = str(Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json")
OLDER = "00" * 16
WITHOUT_JSON = {"hplacer completion", "hplacer run"}


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Those that do something, and the groups of them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from commands(command)


ALL = {command.prog: command for command in commands(cli._parser())}
RUN = {prog: command for prog, command in ALL.items() if command.get_default("run")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a store `plans`, a plan file `x.hplan` and a log."""
    store = PlanStore(tmp_path / "plans")
    store.put(make_plan())
    store.put(make_plan(fingerprint=OLDER, created="2020-01-01T00:00:00Z"))
    hp.plan(GOLDEN, "etf").save(tmp_path / "x.hplan")
    (tmp_path / "train.log").write_text("nothing of ours\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- help ----


@pytest.mark.parametrize("prog", ALL)
def test_the_help_has_an_example(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*prog.split()[1:], "--help"]) == 0
    group = " ".join(prog.split()[:2])
    assert re.search(rf"examples?:\s+{group}\b", capsys.readouterr().out)


@pytest.mark.parametrize("prog", RUN)
def test_options_have_the_same_names_everywhere(prog: str) -> None:
    found = {name: action for action in RUN[prog]._actions for name in action.option_strings}
    assert ("--json" in found) is (prog not in WITHOUT_JSON)
    assert ("-o" in found) is ("--output" in found)
    assert not {"--out", "--limit", "--plan", "--timeout-s", "--costs"} & found.keys()
    metavars = {
        "--machine": "MACHINE",
        "--cost-table": "FILE",
        "--budget": "TIME",
        "--time": "TIME",
    }
    metavars |= {"--planner": "NAME", "--seed": "N", "--cache": "DIR", "--graph": "GRAPH"}
    assert {name: found[name].metavar for name in metavars if name in found}.items() <= (
        metavars.items()
    )
    for name, action in found.items():
        assert action.help, name
        if action.metavar in ("N", "TIME"):
            assert action.type not in (None, int, float), name


def test_the_help_does_not_offer_what_is_for_studies(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--planner", "help"]) == 0
    listed = capsys.readouterr().out
    assert all(re.search(rf"^ *{name} +\w", listed, re.MULTILINE) for name in PLANNERS)
    assert cli.main(["plan", "x", "--planner", "none"]) == 2
    assert "random_grouping" not in capsys.readouterr().err


# ---- JSON ----

AS_JSON: dict[str, tuple[str, ...]] = {
    "cache list": (),
    "cache path": (),
    "cache verify": (),
    "cache remove": ("latest",),
    "cache prune": ("--unused-for", "1"),
    "cache export": ("elsewhere", "3f9c"),
    "cache import": ("plans",),
    "show": ("x.hplan",),
    "explain": ("x.hplan", "--budget", "1"),
    "report": ("x.hplan", "-o", "x.html"),
    "diff": ("x.hplan", "x.hplan"),
    "simulate": (GOLDEN, "--placement", "etf"),
    "advise": (GOLDEN, "--budget", "1"),
    "plan": (GOLDEN, "--planner", "etf"),
    "export": (GOLDEN, "-o", "again.hplacer.json"),
    "machine list": (),
    "machine show": ("8xv100",),
    "why": ("train.log",),
}
USES_THE_STORE = ("cache", "show", "why")
OTHER_WORDS = {"makespan_ns", "step_ns", "step_s", "out", "time", "report"}
OTHER_WORDS |= {"median_s", "measured_s", "predicted_s", "spread_s", "published_s"}


def keys(value: Any) -> Iterator[str]:
    """All keys of a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    if isinstance(value, list):
        for inner in value:
            yield from keys(inner)


@pytest.mark.parametrize("command", AS_JSON)
def test_json_has_one_vocabulary(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ("--cache", "plans") if command.split()[0] in USES_THE_STORE else ()
    assert cli.main([*command.split(), *AS_JSON[command], *store, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not OTHER_WORDS & {*keys(document)}
    if command in ("show", "explain", "report", "simulate", "plan"):
        assert document["step_time_ns"] > 0
        assert document["feasible"] is True


# ---- plans by name ----


def test_the_latest_plan_has_a_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(name: str) -> str:
        assert cli.main(["show", name, "--cache", "plans", "--json"]) == 0
        fingerprint: str = json.loads(capsys.readouterr().out)["fingerprint"]
        return fingerprint

    assert (shown("latest"), shown("0"), shown("3f")) == (FINGERPRINT, OLDER, FINGERPRINT)
    assert cli.main(["cache", "remove", "latest", "--cache", "plans"]) == 0
    capsys.readouterr()
    assert shown("latest") == OLDER
    assert cli.main(["cache", "remove", "latest", "--cache", "plans"]) == 0
    assert cli.main(["show", "latest", "--cache", "plans"]) == 1
    assert "there is no plan" in capsys.readouterr().err


# ---- wrong input ----

WRONG: dict[str, tuple[int, str]] = {
    # misspelt
    "shwo": (2, "unknown command 'shwo'; did you mean 'show'?"),
    "cache lst": (2, "unknown action 'lst'; did you mean 'list'?"),
    "bench papr": (2, "unknown set 'papr'; did you mean 'paper'?"),
    "plan x --plannr etf": (2, "unknown option '--plannr'; did you mean '--planner'?"),
    "plan x --out y": (2, "unknown option '--out'"),
    "plan x y": (2, "'y' is one argument too many"),
    "plan x --planner hirarchical": (2, "did you mean 'hierarchical'?"),
    "pretrain x --planner locl_search": (2, "did you mean 'local_search'?"),
    "try --planner autoo train.py": (2, "did you mean 'auto'?"),
    "bench paper --planner metiss": (2, "did you mean 'metis'?"),
    "plan x --machine 8xv10": (2, "did you mean '8xv100'?"),
    "machine show 1cpu-2xk4": (2, "did you mean '1cpu-2xk40'?"),
    "run --emulate 8xa1000 train.py": (2, "did you mean '8xa100'?"),
    "try --emulate 8xa1000 train.py": (2, "did you mean '8xa100'?"),
    "measure x --graph g --emulate 8xa1000": (2, "did you mean '8xa100'?"),
    "bench modern --machine 8xv10": (2, "did you mean '8xv100'?"),
    "bench paper --workload rnnl": (2, "did you mean 'rnnlm'?"),
    f"simulate {GOLDEN} --placement gpu_onli": (2, "did you mean 'gpu_only'?"),
    "demo --workload kears": (2, "did you mean 'keras'?"),
    # numbers
    "plan x --budget -5": (2, "--budget: must be more than 0, not '-5'"),
    "plan x --budget -5s": (2, "--budget: must be more than 0, not '-5s'"),
    "plan x --budget 0": (2, "must be more than 0"),
    "plan x --budget soon": (2, "is no duration; write 90s, 10m or 1h30m"),
    "show x --depth 0": (2, "argument --depth: must be a whole number from 1 to 100, not '0'"),
    "plan x --steps -1": (2, "--steps: must be a whole number of at least 1, not '-1'"),
    "plan x --seed 9223372036854775808": (2, "--seed: must be at most 9223372036854775807, not"),
    "plan x --seed -1": (2, "--seed: must be a whole number of at least 0, not '-1'"),
    "advise x --batch-size 32,0": (2, "--batch-size: must be a whole number of at least 1"),
    "plan x --batch-size 0": (2, "--batch-size: must be a whole number of at least 1"),
    "plan x --shape x=2,-3": (2, "sizes are whole numbers of at least 0"),
    "cluster start --workers 0": (2, "must be a whole number from 1 to 256"),
    "cache prune --unused-for -1": (2, "must be a number of days, not '-1'"),
    "bench paper --budget 1x": (2, "is no duration"),
    # what is not advised about
    "advise": (2, "name a graph or a script, or a workload"),
    "advise x --workload nmt_4": (2, "one only"),
    "advise --workload nmt_44": (2, "did you mean 'nmt_4'?"),
    f"advise {GOLDEN} --script-args=--epochs": (2, "no script (*.py)"),
    f"advise {GOLDEN} -o x.doc --budget 1": (2, "write .svg, .png or .pdf"),
    # emulated devices
    "measure x --graph g --emulate 8xa100 --machine 8xv100": (2, "leave out --machine"),
    "measure x --graph g --emulate 8xa100 --cluster a:1": (2, "leave out --emulate"),
    # empty
    "plan x --budget=": (2, "--budget: must not be empty"),
    "plan x --planner=": (2, "--planner: must not be empty"),
    "plan x -o=": (2, "must not be empty"),
    "show x --cache=": (2, "--cache: must not be empty"),
    # missing
    "show": (2, "the following arguments are required: PLAN"),
    "report x.hplan": (2, "nothing to write: name -o, --trace or --tensorboard"),
    "why": (2, "name a LOG or a --graph"),
    "try": (2, "name a script, or a module with -m"),
    "run": (2, "name a script, or a module with -m"),
    "calibrate -o m.yaml --cost-table c.json": (2, "belong together"),
    "cache": (2, "the following arguments are required: ACTION"),
    "why x.log --graph y.meta": (2, "name a LOG or a --graph"),
    "completion": (2, "the following arguments are required: SHELL"),
    "completion fsh": (2, "did you mean 'fish'?"),
    f"simulate {GOLDEN} --placement all:9": (1, "is out of range"),
    # files that are not there
    "plan none.meta": (1, "none.meta: no such file"),
    "export none.hplacer.json -o y": (1, "none.hplacer.json: no such file"),
    "advise none.meta": (1, "none.meta: no such file"),
    "advise none.py": (1, "none.py: there is no such script"),
    "show none.hplan": (1, "none.hplan: there is no such file"),
    "show ./plans/": (1, "./plans/: is a directory; name a plan file in it"),
    "show x --cache ~nobody-here/plans": (1, "'~nobody-here/plans': there is no such home"),
    "explain none.hplan": (1, "none.hplan: there is no such file"),
    "diff x.hplan none.hplan": (1, "none.hplan: there is no such file"),
    "machine show none.yaml": (1, "none.yaml: No such file"),
    "why none.log": (1, "none.log: No such file"),
    "cache import none": (1, "there is no such file or directory"),
    "measure none.hplan --graph none.meta": (1, "none.hplan: there is no such file"),
    "cache remove abc --cache plans": (1, "no plan with 'abc'"),
    "cache restore abc --cache plans": (1, "no plan with 'abc'"),
    "cache export elsewhere abc --cache plans": (1, "no plan with 'abc'"),
    "show abc --cache plans": (1, "no plan with 'abc'"),
    "show latets --cache plans": (1, "or 'latest'"),
    # outputs that cannot be written, before anything is read
    "plan none.meta -o no/x.hplan": (1, "no/x.hplan: its directory does not exist"),
    "plan none.meta -o plans": (1, "plans: is a directory"),
    "plan none.meta --trace no/x.json": (1, "no/x.json: its directory"),
    "export none.meta -o no/x": (1, "no/x: its directory"),
    "advise none.meta -o no/x.svg": (1, "no/x.svg: its directory"),
    "report none.hplan -o no/x.html": (1, "no/x.html: its directory"),
    "apply none.hplan --graph none.meta -o no/x": (1, "no/x: its directory"),
    "calibrate -o no/m.yaml": (1, "no/m.yaml: its directory"),
    "machine detect -o no/m.yaml": (1, "no/m.yaml: its directory"),
    "cluster start -o no/m.yaml": (1, "no/m.yaml: its directory"),
    "demo -o no/x.html": (1, "no/x.html: its directory"),
    "plan none.meta -o x --trace ./x": (2, "--output and --trace name the same file, ./x"),
    "report none.hplan -o x --trace ./x": (2, "--output and --trace name the same file, ./x"),
    "bench paper -o train.log/x": (1, "train.log is a file"),
    "bench cluster -o train.log/x": (1, "train.log is a file"),
    "bench predict -o train.log/x": (1, "train.log is a file"),
    "pretrain x --checkpoint train.log/x": (1, "train.log is a file"),
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_told_in_a_line(
    line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.rglob("*"))
    code, text = WRONG[line]
    assert cli.main(line.split()) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    error, *remedy = printed.err.splitlines()
    assert re.match(r"hplacer[a-z ]*: error: ", error)
    assert text in error
    assert not remedy or remedy == [f"see: {error.partition(':')[0]} --help"]
    assert sorted(here.rglob("*")) == before


def test_every_command_has_its_wrong_input() -> None:
    """Or nothing that could be wrong, but for the options that all have."""
    harmless = {"cache list", "cache path", "cache verify", "machine list", "doctor"}
    for command in {prog.removeprefix("hplacer ") for prog in RUN} - harmless:
        assert any(f"{line} ".startswith(f"{command} ") for line in WRONG), command


def test_the_makefile_calls_commands_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path)
    lines = (ROOT / "Makefile").read_text().splitlines()
    calls = [line.partition(".venv/bin/hplacer ")[2] for line in lines]
    assert [cli._parser().parse_args(shlex.split(call)).run for call in calls if call]
