"""Many starts of one Keras script: `python -m tests.stress_starts --help`.

In turns a start without the optimizer, one with an empty plan store, and one that finds its plan.
Measured is the time from `fit` to the end of the first step. Exits with 1 if a start failed, had
another outcome than expected, or another loss.

    python -m tests.stress_starts --count 500
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.processes import Outcome, run

_PROGRAM = """
import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([
    keras.layers.Input([12]), keras.layers.Dense(32, activation="relu"),
    keras.layers.BatchNormalization(), keras.layers.Dense(32, activation="tanh"),
    keras.layers.Dense(1),
])
model.compile("adam", "mse", jit_compile=False)
inputs = np.random.default_rng(0).normal(size=[64, 12]).astype("float32")

class FirstStep(keras.callbacks.Callback):
    seconds = None
    def on_train_batch_end(self, batch, logs=None):
        self.seconds = self.seconds or time.monotonic() - started

if os.environ["STARTS_STORE"]:
    set_options({"hierarchical_placer": {"cache": os.environ["STARTS_STORE"], "budget_s": 0.5,
        "min_gain": -1}})
first = FirstStep()
started = time.monotonic()
fitted = model.fit(inputs, inputs[:, :1], batch_size=16, epochs=1, verbose=0, callbacks=[first])
report(seconds=first.seconds, loss=fitted.history["loss"][0],
       outcomes=[outcome for outcome in outcomes() if outcome != "skipped"])  # of initialisers
"""
_EXPECTED = {"without": [], "planned": ["planned"], "hit": ["loaded"]}


def start(store: str) -> Outcome:
    """One start; it fails unless the script ends well."""
    with tempfile.TemporaryDirectory() as directory:
        return run(_PROGRAM, Path(directory), log="warning", STARTS_STORE=store)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a start was not as expected."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500, help="starts with the optimizer")
    options = parser.parse_args(arguments)
    seconds: dict[str, list[float]] = defaultdict(list)
    loss = None
    wrong = 0
    with tempfile.TemporaryDirectory() as kept:
        assert start(kept).report["outcomes"] == ["planned"]
        for number in range(math.ceil(options.count / 2)):
            with tempfile.TemporaryDirectory() as empty:
                for name, store in {"without": "", "planned": empty, "hit": kept}.items():
                    outcome = start(store)
                    seen = outcome.report
                    loss = seen["loss"] if loss is None else loss
                    seconds[name].append(seen["seconds"])
                    same = math.isclose(seen["loss"], loss, rel_tol=1e-4)
                    if seen["outcomes"] != _EXPECTED[name] or not same or outcome.log:
                        wrong += 1
                        print(f"start {number} {name}: {seen}\n{outcome.stderr}", flush=True)
    without = statistics.median(seconds["without"])
    for name, values in seconds.items():
        quantiles = [sorted(values)[round(q * (len(values) - 1))] for q in (0.05, 0.5, 0.95, 1)]
        shown = " ".join(f"{value:7.3f}" for value in quantiles)
        added = f", median added {quantiles[1] - without:+.3f} s" if name != "without" else ""
        print(f"{name:8} {len(values):4} starts, seconds to the first step at 5, 50, 95, 100%: "
              f"{shown}{added}")  # fmt: skip
    print(f"{wrong} starts were wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
