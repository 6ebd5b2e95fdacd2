"""The switch with the real TensorFlow, in processes of its own: it is set once per process."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests import processes

pytest.importorskip("tensorflow")

KEY = "hierarchical_placer"
PRELUDE = f"""
import threading
import tensorflow as tf
import hplacer_optimizer as hp
from tensorflow.python.eager import context
from hplacer_optimizer.plugin import switch
from hplacer_optimizer.options import Options

v1 = tf.compat.v1
KEY = "{KEY}"
set_options = tf.config.optimizer.set_experimental_options
get_options = tf.config.optimizer.get_experimental_options

def entries(config):
    return [e for e in config.graph_options.rewrite_options.custom_optimizers
            if e.name == "HierarchicalPlacer"]

def options_in(config):
    "None without an entry of ours, else its options."
    found = entries(config)
    assert len(found) < 2
    return Options.from_parameters(found[0].parameter_map) if found else None

def seen():
    "What this thread's configs say: they must agree."
    serialized = context.context().function_call_options.config_proto_serialized
    calls = options_in(v1.ConfigProto.FromString(serialized))
    assert calls == options_in(context.context().config)
    return calls

def on_thread(function):
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]

def raised(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")
"""


def run(code: str, fresh: bool = False, **environment: str) -> list[str]:
    """Runs the code; returns what the package writes to stderr."""
    with tempfile.TemporaryDirectory() as directory:
        return processes.run(code, Path(directory), prelude="", fresh=fresh, **environment).log


def test_the_option_travels_in_the_config_and_is_shown() -> None:
    log = run(
        PRELUDE
        + """
assert seen() is None and KEY not in get_options()
before = context.context().config.SerializeToString(deterministic=True)

set_options({KEY: True, "constant_folding": False})
assert seen() == Options()
assert get_options()[KEY] is True and get_options()["constant_folding"] is False

set_options({KEY: {"seed": 5, "targets": ["a", "b"]}})
assert seen() == Options(seed=5, targets=("a", "b"))
assert get_options()[KEY] == {"seed": 5, "targets": ("a", "b")}

hp.enable()
assert seen() == Options() and get_options()["constant_folding"] is False
hp.enable(seed=5, targets=["a", "b"])
assert seen() == Options(seed=5, targets=("a", "b"))

kept = get_options()
set_options({KEY: False})
assert seen() is None and get_options()[KEY] is False
set_options(kept)
assert seen() == Options(seed=5, targets=("a", "b"))

set_options({"remapping": False})  # other options leave ours alone
assert seen() == Options(seed=5, targets=("a", "b"))

set_options({KEY: None, "remapping": None, "constant_folding": None,
             "disable_model_pruning": None, "disable_meta_optimizer": None})
assert context.context().config.SerializeToString(deterministic=True) == before
"""
    )
    assert log == []


def test_an_error_leaves_everything_as_before() -> None:
    run(
        PRELUDE
        + """
set_options({KEY: {"seed": 1}, "remapping": False})
before = get_options()
for wrong in ("yes", 1, {"sed": 2}, {"seed": "2"}):
    error = raised(set_options, {"remapping": True, KEY: wrong})
    assert isinstance(error, hp.OptionError) and isinstance(error, ValueError), error
    assert get_options() == before
assert "did you mean 'seed'" in str(raised(set_options, {KEY: {"sed": 2}}))
assert "did you mean 'seed'" in str(raised(lambda: hp.enable(sed=2)))
"""
    )


def test_a_misspelt_key_is_one_warning_with_the_right_one() -> None:
    log = run(
        PRELUDE
        + """
for _ in range(2):
    set_options({"hierarchical_placr": True, "layout_optimizer": True, "something_else": 1})
set_options({"HierarchicalPlacer": True})
assert seen() is None and get_options()["layout_optimizer"] is True
"""
    )
    assert log == [
        f"hplacer: unknown option {name!r} is ignored; did you mean {KEY!r}?"
        for name in ("hierarchical_placr", "HierarchicalPlacer")
    ]


def test_every_thread_follows_a_change() -> None:
    run(
        PRELUDE
        + """
from concurrent.futures import ThreadPoolExecutor

barrier = threading.Barrier(4)
def look(_):
    barrier.wait(30)
    return seen()

with ThreadPoolExecutor(4) as pool:
    for chosen in (False, {"seed": 1}, {"seed": 2}, False, True):
        set_options({KEY: chosen})
        assert list(pool.map(look, range(4))) == [Options.from_user(chosen)] * 4
    pool.submit(set_options, {KEY: {"seed": 9}}).result()
    assert seen() == Options(seed=9)
"""
    )


def test_functions_that_ran_before_are_instantiated_again_but_not_traced_again() -> None:
    run(
        PRELUDE
        + """
traces = []

@tf.function
def double(x):
    traces.append(1)
    return x + x

def instantiations():
    "How many graphs TensorFlow built for one call."
    context.enable_run_metadata()
    assert float(double(tf.constant(2.0))) == 4.0
    built = len(context.export_run_metadata().function_graphs)
    context.disable_run_metadata()
    return built

assert instantiations() > 0 and instantiations() == 0
for chosen in (True, {"seed": 1}, {"seed": 2}):
    set_options({KEY: chosen})
    assert instantiations() > 0 and instantiations() == 0
    assert on_thread(instantiations) == 0
    assert on_thread(seen) == seen() == Options.from_user(chosen)
set_options({KEY: False})
assert instantiations() == 0  # the first instance serves again
assert traces == [1]
"""
    )


def test_the_executor_type_survives_a_change_inside_its_scope() -> None:
    run(
        PRELUDE
        + """
with context.function_executor_type("SINGLE_THREADED_EXECUTOR"):
    set_options({"remapping": False})
    switch._epoch = object()  # as a change by another thread
with context.function_executor_type("SINGLE_THREADED_EXECUTOR"):
    switch._epoch = object()
    assert context.context().function_call_options.executor_type == "SINGLE_THREADED_EXECUTOR"
    with hp.disabled():
        assert context.context().function_call_options.executor_type == "SINGLE_THREADED_EXECUTOR"
assert not context.context().function_call_options.executor_type
"""
    )


def test_disabled_holds_for_its_block_and_thread_only() -> None:
    run(
        PRELUDE
        + """
set_options({KEY: {"seed": 1}})
carrying = hp.session_config()
assert seen() == Options(seed=1)
with hp.disabled():
    assert seen() is None and switch.current_options() is None
    assert on_thread(seen) == Options(seed=1)
    with hp.disabled():
        assert seen() is None
    assert seen() is None
    with tf.Graph().as_default():
        assert options_in(v1.Session()._config) is None
        assert options_in(v1.Session(config=carrying)._config) is None
    assert on_thread(lambda: set_options({KEY: {"seed": 2}})) is None
    assert seen() is None and on_thread(seen) == Options(seed=2)
assert seen() == Options(seed=2)
try:
    with hp.disabled():
        raise KeyError
except KeyError:
    assert seen() == Options(seed=2)
"""
    )


def test_sessions() -> None:
    run(
        PRELUDE
        + """
def config_of(**arguments):
    with tf.Graph().as_default(), v1.Session(**arguments) as session:
        return session._config

set_options({KEY: {"seed": 1}})
assert options_in(config_of()) == Options(seed=1)
explicit = v1.ConfigProto(log_device_placement=True)
assert config_of(config=explicit) is explicit and options_in(explicit) is None  # left alone

config = hp.session_config(planner="auto", seed=2, targets=["train_op"])
assert options_in(config) == Options(seed=2, targets=("train_op",))
assert options_in(config_of(config=config)) == Options(seed=2, targets=("train_op",))

other = explicit.graph_options.rewrite_options.custom_optimizers.add()
other.name = "Other"
extended = hp.session_config(config=explicit, seed=3)
replaced = hp.session_config(config=extended)
assert extended.log_device_placement and options_in(extended) == Options(seed=3)
assert options_in(explicit) is None and options_in(replaced) == Options()
names = [e.name for e in replaced.graph_options.rewrite_options.custom_optimizers]
assert names == ["Other", "HierarchicalPlacer"]

assert "did you mean 'seed'" in str(raised(lambda: hp.session_config(sed=1)))
assert isinstance(raised(hp.session_config, "config"), hp.OptionError)
with tf.Graph().as_default():
    assert isinstance(raised(lambda: v1.Session(config="config")), TypeError)
    assert isinstance(raised(lambda: v1.Session(v1.ConfigProto())), TypeError)
"""
    )


def test_an_entry_given_to_enable_eager_execution_counts_until_the_option_is_set() -> None:
    run(
        PRELUDE
        + """
v1.enable_eager_execution(config=hp.session_config(seed=4))
context.context()._config = hp.session_config(seed=4)
assert seen() == Options(seed=4)
set_options({KEY: {"seed": 5}})
assert seen() == Options(seed=5)
set_options({KEY: False})
assert seen() is None
"""
    )


def test_the_environment_switches_on_explicit_sessions_too() -> None:
    log = run(
        PRELUDE
        + """
assert seen() == Options(seed=6) and get_options()[KEY] == {"seed": 6}
explicit = v1.ConfigProto(log_device_placement=False)
with tf.Graph().as_default():
    config = v1.Session(config=explicit)._config
    assert options_in(config) == Options(seed=6) and options_in(explicit) is None
    own = hp.session_config(seed=7)
    assert options_in(v1.Session(config=own)._config) == Options(seed=7)
    set_options({KEY: False})
    assert seen() is None and v1.Session(config=explicit)._config is explicit
""",
        HPLACER_OPTIONS="seed=6",
    )
    assert log == []


def test_a_wrong_environment_is_one_warning() -> None:
    code = "assert seen() is None and on_thread(seen) is None"
    (line,) = run(PRELUDE + code, HPLACER_OPTIONS="sed=")
    assert "HPLACER_OPTIONS is ignored" in line
    assert "did you mean 'seed'" in line


def test_replaced_threads_are_one_warning() -> None:
    replaced = """
import _thread
start = _thread.start_new_thread
_thread.start_new_thread = lambda *arguments: start(*arguments)  # as gevent and eventlet do
hp.enable()
hp.enable()
"""
    (line,) = run(PRELUDE + replaced)
    assert "the optimizer is off: gevent or eventlet has replaced Python's threads" in line


@pytest.mark.parametrize("options", ["off", "seed=1"])
def test_hplacer_disable_wins_over_everything(options: str) -> None:
    run(
        PRELUDE
        + """
carrying = v1.ConfigProto()
Options().to_entry(carrying.graph_options.rewrite_options.custom_optimizers.add())
set_options({KEY: {"seed": 3}})
assert get_options()[KEY] == {"seed": 3}
assert isinstance(raised(set_options, {KEY: {"sed": 3}}), hp.OptionError)
assert seen() is None and options_in(hp.session_config(config=carrying, seed=1)) is None
with tf.Graph().as_default():
    assert options_in(v1.Session(config=carrying)._config) is None
    assert options_in(v1.Session(config=v1.ConfigProto())._config) is None
assert entries(carrying)
""",
        HPLACER_DISABLE="1",
        HPLACER_OPTIONS=options,
    )


@pytest.mark.parametrize(
    "imports",
    [
        "import hplacer_optimizer, tensorflow as tf",
        pytest.param("import tensorflow as tf, hplacer_optimizer", marks=pytest.mark.slow),
        pytest.param(
            "import hplacer_optimizer; from tensorflow.python.eager import context\n"
            "import tensorflow as tf",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import hplacer_optimizer, importlib.util; importlib.util.find_spec('tensorflow')\n"
            "import tensorflow as tf",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_both_import_orders(imports: str) -> None:
    run(
        imports
        + f"""
tf.config.optimizer.set_experimental_options({{"{KEY}": {{"seed": 1}}}})
assert tf.config.optimizer.get_experimental_options()["{KEY}"] == {{"seed": 1}}
assert tf.__spec__.loader is tf.__loader__ and tf.__spec__.name == "tensorflow"
""",
        fresh=True,
    )


def test_the_package_imports_no_tensorflow_and_knows_its_names() -> None:
    run(
        """
import sys
import hplacer_optimizer as hp
package = "hplacer_optimizer"
heavy = {"tensorflow", "numpy", "keras", f"{package}._engine", f"{package}.plugin.switch"}
assert not heavy & set(sys.modules)
assert all(getattr(hp, name) is not None for name in hp.__all__)
assert set(hp.__all__) <= set(dir(hp)) and "tensorflow" not in sys.modules
with hp.disabled():
    pass
try:
    hp.nothing
except AttributeError as error:
    assert "nothing" in str(error)
""",
        fresh=True,
    )


# ---- Keras ----

COMPILE = """
import sys

def compiled(jit):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=jit)
    return model

compiled(True)  # the optimizer is off: nothing to say
set_options({KEY: True})
compiled(False)
with hp.disabled():
    compiled(True)
print("hplacer: now", file=sys.stderr)
compiled(True)
compiled(True)
"""


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("keras", False),
        pytest.param("keras", True, marks=pytest.mark.slow),
        pytest.param("tf_keras", False, marks=pytest.mark.slow),
        pytest.param("tf_keras", True, marks=pytest.mark.slow),
    ],
)
def test_a_keras_model_compiled_with_xla_is_one_warning(module: str, first: bool) -> None:
    pytest.importorskip(module)
    imports = f"import {module} as keras\n"
    code = (imports + PRELUDE if first else PRELUDE + imports) + COMPILE
    now, warning = run(code, fresh=first)
    assert now == "hplacer: now"
    assert "jit_compile=False" in warning
