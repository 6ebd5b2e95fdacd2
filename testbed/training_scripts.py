"""Training scripts as users write them, in testbed/scripts/, and how to read what a run said."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts"
TIMED_SCRIPTS = Path(__file__).parent / "timed_scripts"  # each has a stopwatch around its steps
OPTIONS = "planner=random,seed=1,min_ops=5,min_gain=-1,cache={cache}"
ROUNDING = 1e-5  # Grappler merges and folds ops on one device only, so sums change their order
_RESULT = re.compile(r"\{.*\}$", re.MULTILINE)
_OUTCOME = re.compile(r"^hplacer: plan (made|loaded) for ", re.MULTILINE)
_ERROR = re.compile(r"^[\w.]+(?:Error|Interrupt)\b.*", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A script and what is expected of it."""

    needs: str = ""  # a module, or the script is skipped
    tolerance: float = 0.0  # relative, of every number
    ends: int = 0  # its exit code
    in_children: bool = False  # only processes that it starts train: they leave a log, no report
    slow: bool = False
    left_alone: bool = False  # its training step: replicas have their devices


CASES = {
    "assertion_fails.py": Case(ends=1, slow=True),
    "branches.py": Case(),
    "checkpoints.py": Case(slow=True),
    "contrastive.py": Case(tolerance=ROUNDING, slow=True),
    "convolutional_network.py": Case(slow=True),
    "custom_gradients.py": Case(slow=True),
    "custom_loop.py": Case(),
    "data_pipeline.py": Case(slow=True),
    "device_annotations.py": Case(slow=True),
    "errors_in_steps.py": Case(),
    "fork_before_use.py": Case(slow=True),
    "gradient_accumulation.py": Case(tolerance=ROUNDING, slow=True),
    "gradients_outside.py": Case(),
    "graph_network.py": Case(slow=True),
    "interrupted.py": Case(ends=-2),
    "keras_attention.py": Case(tolerance=ROUNDING, slow=True),
    "keras_callback_raises.py": Case(ends=1, slow=True),
    "keras_convolutions.py": Case(slow=True),
    "keras_custom_loop.py": Case(slow=True),
    "keras_functional.py": Case(tolerance=ROUNDING, slow=True),
    "keras_gan.py": Case(slow=True),
    "keras_gru.py": Case(slow=True),
    "keras_load_model.py": Case(slow=True),
    "keras_lstm.py": Case(slow=True),
    "keras_mirrored_strategy.py": Case(slow=True, left_alone=True),
    "keras_mixed_precision.py": Case(slow=True),
    "keras_sequential.py": Case(slow=True),
    "keras_steps_per_execution.py": Case(slow=True),
    "keras_subclassed.py": Case(tolerance=ROUNDING, slow=True),
    "loops.py": Case(),
    "mirrored_accumulation.py": Case(slow=True, left_alone=True),
    "mirrored_batch_norm.py": Case(slow=True, left_alone=True),
    "mirrored_loop.py": Case(slow=True, left_alone=True),
    "mirrored_reductions.py": Case(slow=True, left_alone=True),
    "mirrored_strategy.py": Case(slow=True, left_alone=True),
    "mixture_of_experts.py": Case(slow=True),
    "multiprocessing_workers.py spawn": Case(in_children=True, slow=True),
    "multiprocessing_workers.py forkserver": Case(in_children=True, slow=True),
    "notebook.py": Case(slow=True),
    "python_functions.py": Case(slow=True),
    "ragged_and_sparse.py": Case(slow=True),
    "random_numbers.py": Case(slow=True),
    "recommender.py": Case(tolerance=ROUNDING, slow=True),
    "retraces.py": Case(slow=True),
    "saved_model.py": Case(tolerance=ROUNDING, slow=True),
    "second_order.py": Case(slow=True),
    "sequence_to_sequence.py": Case(slow=True),
    "slim_training.py": Case(needs="tf_slim", slow=True),
    "strings_and_tables.py": Case(slow=True),
    "tf_keras_fit.py": Case(needs="tf_keras", slow=True),
    "threads.py": Case(),
    "transformer_encoder.py": Case(tolerance=ROUNDING, slow=True),
    "unit_tests.py": Case(slow=True),
    "v1_monitored_session.py": Case(slow=True),
    "v1_partial_run.py": Case(slow=True),
    "v1_recurrent.py": Case(slow=True),
    "v1_session.py": Case(slow=True),
    "v1_threads.py": Case(slow=True),
    "variational_autoencoder.py": Case(tolerance=ROUNDING, slow=True),
}


def results_of(stdout: str) -> list[Any]:
    """The JSON lines that a script printed."""
    return [json.loads(text) for text in _RESULT.findall(stdout)]


def errors_of(stderr: str) -> list[str]:
    """The first lines of uncaught exceptions."""
    return _ERROR.findall(stderr)


def outcomes_of(stderr: str) -> list[str]:
    """Of each plan "made" or "loaded", as the log at level debug says."""
    return _OUTCOME.findall(stderr)
