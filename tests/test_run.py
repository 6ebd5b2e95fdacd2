"""`python -m hplacer_optimizer.run`: the script sees what it would see under `python`."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

REPORT = """\
"What the script sees."
import __main__, json, os, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "name": __name__, "file": __file__, "doc": __doc__,
    "is_main": __main__.__dict__ is globals(), "spec": str(__spec__ and __spec__.name),
    "builtins": str(__builtins__), "loader": type(__loader__).__name__,
    "names": sorted(name for name in globals() if name[0] == "_"),
}))
"""


def python(
    *arguments: str | Path, cwd: Path, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HPLACER_")}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=kept | {"PYTHONPATH": str(ROOT)} | environment,
    )
    assert done.returncode == code, done.stderr
    return done


RUN = ("-m", "hplacer_optimizer.run")


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    (tmp_path / "folder" / "package").mkdir(parents=True)
    (tmp_path / "folder" / "script.py").write_text(REPORT)
    (tmp_path / "link.py").symlink_to(tmp_path / "folder" / "script.py")
    (tmp_path / "folder" / "package" / "__init__.py").touch()
    (tmp_path / "folder" / "package" / "module.py").write_text(REPORT)
    (tmp_path / "folder" / "package" / "__main__.py").write_text(REPORT)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("folder/script.py",),
        ("folder/script.py", "--options", "-m", "x", "--help", "--", ""),
        ("link.py", "a"),
        ("-m", "folder.package.module", "-m", "--options", "x"),
        ("-m", "folder.package"),
        ("folder/package", "a"),
    ],
)
def test_a_script_sees_what_python_shows_it(scripts: Path, arguments: tuple[str, ...]) -> None:
    plain = json.loads(python(*arguments, cwd=scripts).stdout)
    ours = json.loads(python(*RUN, *arguments, cwd=scripts).stdout)
    assert ours == plain
    assert plain["is_main"]


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('bye')", 1, "bye"),
        ("def f():\n    raise KeyError('k')\nf()", 1, "KeyError: 'k'"),
        ("1 +", 1, "SyntaxError"),
    ],
)
def test_exit_codes_and_exceptions_pass_through(
    tmp_path: Path, code: str, status: int, error: str
) -> None:
    (tmp_path / "script.py").write_text(code)
    assert error in python(*RUN, "script.py", cwd=tmp_path, code=status).stderr


RAISING = """
def f(x):
    return 1 / x
try:
    f(0)
except ZeroDivisionError as error:
    raise ValueError("second") from error
"""


HOOK = """
import sys
sys.excepthook = lambda *args: print(args[2].tb_frame.f_code.co_filename)
1 / 0
"""


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (RAISING, ("script.py",)),
        (RAISING, ("-m", "script")),
        (RAISING, ("script.pyc",)),
        (RAISING, (".",)),
        ("1 +", ("script.py",)),
        ("raise KeyboardInterrupt", ("script.py",)),
        ("raise KeyboardInterrupt", ("-m", "script")),
        (HOOK, ("script.py",)),
    ],
)
def test_a_traceback_is_that_of_python(
    tmp_path: Path, code: str, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "script.py").write_text(code)
    if arguments == ("script.pyc",):
        py_compile.compile(str(tmp_path / "script.py"), str(tmp_path / "script.pyc"))
    if arguments == (".",):
        (tmp_path / "script.py").rename(tmp_path / "__main__.py")
    plain, ours = (
        subprocess.run(
            [sys.executable, *command, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for command in ((), RUN)
    )
    assert plain.returncode != 0
    assert ours.returncode == plain.returncode
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr


@pytest.mark.parametrize("arguments", [("script.py",), ("-m", "script")])
def test_main_stays_until_the_exit_handlers(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "script.py").write_text(
        "import atexit, pickle\nclass A: pass\natexit.register(lambda: print(pickle.dumps(A())))"
    )
    assert "__main__" in python(*RUN, *arguments, cwd=tmp_path).stdout


def test_a_missing_script_is_reported_as_python_does(tmp_path: Path) -> None:
    done = python(*RUN, "nothing.py", cwd=tmp_path, code=2)
    assert "can't open file" in done.stderr
    assert "Traceback" not in done.stderr


SEE = "import os; print(os.environ['HPLACER_OPTIONS'])"


@pytest.mark.parametrize(
    ("arguments", "environment", "seen"),
    [
        ((), {}, "on"),
        (("--options", "seed=1"), {"HPLACER_OPTIONS": "seed=2"}, "seed=1"),
        ((), {"HPLACER_OPTIONS": "seed=2"}, "seed=2"),
        (("--options", ""), {}, ""),
    ],
)
def test_where_the_options_come_from(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], seen: str
) -> None:
    (tmp_path / "script.py").write_text(SEE)
    done = python(*RUN, *arguments, "script.py", cwd=tmp_path, **environment)
    assert done.stdout.rstrip("\n") == seen


@pytest.mark.parametrize("arguments", [("--options", "sed=1", "x.py"), (), ("--option", "x", "y")])
def test_wrong_usage_ends_with_code_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = python(*RUN, *arguments, cwd=tmp_path, code=2)
    assert "usage:" in done.stderr


def test_help_lists_the_options_and_examples(tmp_path: Path) -> None:
    text = python(*RUN, "--help", cwd=tmp_path).stdout
    assert "loop_trip_count" in text
    assert "python -m hplacer_optimizer.run --options budget_s=20,seed=1 train.py" in text
    assert """'{"targets": ["train_op"]}'""" in text


def test_the_optimizer_is_on_in_the_script(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    (tmp_path / "script.py").write_text(
        "import tensorflow as tf\nprint(tf.config.optimizer.get_experimental_options())"
    )
    done = python(*RUN, "--options", "seed=3", "script.py", cwd=tmp_path)
    assert "'hierarchical_placer': {'seed': 3}" in done.stdout
