"""How exact are the step times that `hplacer try` takes from a script, and what do they cost?

Each script of testbed/timed_scripts has a stopwatch of its own around the same steps. The cost is
what the timer adds to a short step: the median of many turns, in each of which the step runs
without the timer and with it.

    python -m benchmarks.script_timing
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hplacer_optimizer.scripts.step_timer import StepTimer
from hplacer_optimizer.scripts.step_timing import time_script
from testbed.training_scripts import TIMED_SCRIPTS

NAMES = (
    *("custom_loop.py", "keras_fit.py", "gan.py", "v1_session.py", "v1_monitored.py"),
    "two_workers.py",
)
_TURNS, _CALLS, _STEP_S = 2000, 20, 0.5e-3


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="default: 1")
    options = parser.parse_args()
    print("| script | timed | stopwatch | difference |\n|---|---|---|---|")
    for name in NAMES:
        for _ in range(options.repeat):
            timed_s, stopwatch_s = agreement(name)
            print(
                f"| {name} | {timed_s * 1e3:.3f} ms | {stopwatch_s * 1e3:.3f} ms "
                f"| {timed_s / stopwatch_s - 1:+.2%} |"
            )
    print()
    for kind, (step_s, cost_s) in costs().items():
        print(
            f"{kind}: {cost_s * 1e6:.2f} us a call, {cost_s / _STEP_S:.2%} of {_STEP_S * 1e3:g} ms "
            f"(measured at {step_s * 1e6:.0f} us)"
        )


def agreement(name: str) -> tuple[float, float]:
    """Seconds per step, as the timer and as the script itself have them."""
    with tempfile.TemporaryDirectory() as kept:
        work = Path(kept, "work")
        shutil.copytree(TIMED_SCRIPTS, work)
        watch = work / "stopwatch.json"
        found = time_script(
            [name, str(watch)], directory=work, in_place=True, steps=1_000_000, limit_s=300
        )
        return found.step_s, json.loads(watch.read_text())


def costs() -> dict[str, tuple[float, float]]:
    """Seconds of a step without the timer, and what the timer adds, by what is called."""
    import tensorflow as tf
    from tensorflow.python.client import session as sessions
    from tensorflow.python.eager.polymorphic_function import concrete_function

    v1 = tf.compat.v1
    places = [
        (concrete_function.ConcreteFunction, "_call_flat"),
        (sessions.BaseSession, "run"),
    ]
    originals = [getattr(*place) for place in places]
    with tempfile.TemporaryDirectory() as where:
        timing = StepTimer(Path(where), wanted=10**12)
        timing.install()
        wrapped = [getattr(*place) for place in places]

        variable = tf.Variable(tf.zeros((8, 8)))

        @tf.function
        def train_step() -> None:
            variable.assign_sub(variable * 0.1)

        with tf.Graph().as_default():
            weights = v1.get_variable("w", (8, 8), use_resource=True)
            update = weights.assign_sub(weights * 0.1, read_value=False)
            session = v1.Session()
            session.run(v1.global_variables_initializer())

        found = {}
        states = {"": (wrapped, False), ", once enough is known": (wrapped, True)}
        calls = {"tf.function": train_step, "Session.run": lambda: session.run(update)}
        for kind, call in calls.items():
            call()
            turns: dict[str | None, list[float]] = {which: [] for which in (None, *states)}
            for _ in range(_TURNS):
                for which, seconds in turns.items():
                    members, timing.is_over = (originals, False) if which is None else states[which]
                    for place, member in zip(places, members, strict=True):
                        setattr(*place, member)
                    _seconds(call)  # Python looks the method up anew, and then remembers it
                    seconds.append(_seconds(call))
            without = turns.pop(None)
            for which, seconds in turns.items():
                adds = [
                    with_s - without_s for with_s, without_s in zip(seconds, without, strict=True)
                ]
                found[kind + str(which)] = statistics.median(without), statistics.median(adds)
        return found


def _seconds(call: Callable[[], object]) -> float:
    """Of one of several calls."""
    begin = time.perf_counter()
    for _ in range(_CALLS):
        call()
    return (time.perf_counter() - begin) / _CALLS


if __name__ == "__main__":
    main()
