"""The switch: `tf.config.optimizer.set_experimental_options({"hierarchical_placer": ...})`.

TensorFlow drops keys it does not know, so a few members of its eager `Context` class are wrapped:

    set_optimizer_experimental_options   checks our key, keeps it among TensorFlow's own options
    get_optimizer_experimental_options   shows it
    config                               adds it to the ConfigProto, where the native pass finds it
    function_call_options                caches the config per thread: renewed after a change

A context without our key follows HPLACER_OPTIONS. HPLACER_DISABLE=1, and a thread inside
`disabled()`, see configs without the entry, whatever the options say.
"""

from __future__ import annotations

import difflib
import functools
import os
import threading
from types import ModuleType
from typing import Any

from hplacer_optimizer.capture import native
from hplacer_optimizer.errors import NativeBuildError, OptionError
from hplacer_optimizer.log import warn_once
from hplacer_optimizer.options import OPTIMIZER_NAME, START, Options
from hplacer_optimizer.plugin import service, verifying
from hplacer_optimizer.plugin.disabling import eager_context, is_disabled, thread_state
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.support.switched_off import is_switched_off

KEY = "hierarchical_placer"


_epoch = object()  # replaced at every change of the options
_install_lock = threading.Lock()


# ---- what is on ----


def current_options() -> Options | None:
    """What the script, or HPLACER_OPTIONS, asks for on this thread; None: off."""
    context = eager_context()
    if is_disabled() or context is None:
        return None
    return _chosen_options(context)


def options_in_force() -> Options | None:
    """What the pass gets: the same, with the changes of `hplacer try` where it runs the script."""
    options = current_options()
    return None if options is None else exchange.trial_options(options)


def environment_options() -> Options | None:
    """The options of HPLACER_OPTIONS; None where it is not set, off, or (one warning) invalid."""
    text = os.environ.get("HPLACER_OPTIONS")
    return None if text is None else _parsed_environment(text)


@functools.lru_cache(maxsize=1)
def _parsed_environment(text: str) -> Options | None:
    try:
        return Options.from_environment(text)
    except OptionError as error:
        warn_once("HPLACER_OPTIONS", f"HPLACER_OPTIONS is ignored, the optimizer is off: {error}")
        return None


def enable(**options: Any) -> None:
    """Switches the optimizer on for what TensorFlow traces from now on.

    The same as `tf.config.optimizer.set_experimental_options({"hierarchical_placer": options})`; a
    second call replaces the options of the first. A session with a config of its own needs
    `session_config`.

    Args:
        **options: the fields of `Options`.

    Raises:
        OptionError: an unknown option or an invalid value.

    Example:
        >>> import hplacer_optimizer as hp
        >>> hp.enable(budget_s=5)
    """
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({KEY: options or True})


def session_config(config: Any = None, **options: Any) -> Any:
    """A `tf.compat.v1.ConfigProto` that switches the optimizer on for a TF1 session.

    Args:
        config: a ConfigProto to extend; it is copied, and an entry it has is replaced.
        **options: the fields of `Options`.

    Raises:
        OptionError: an unknown option or an invalid value.

    Example:
        >>> import hplacer_optimizer as hp
        >>> import tensorflow as tf
        >>> config = hp.session_config(planner="etf", targets=["train_op"])
        >>> session = tf.compat.v1.Session(config=config, graph=tf.Graph())
    """
    chosen = Options.from_user(options)
    import tensorflow as tf

    result = tf.compat.v1.ConfigProto()
    if config is not None:
        if not isinstance(config, tf.compat.v1.ConfigProto):
            raise OptionError(f"config: must be a tf.compat.v1.ConfigProto, got {config!r}")
        result.CopyFrom(config)
    _put_entry(result, chosen if not is_disabled() and _starts() else None)
    return result


# ---- the ConfigProto ----


def _entries(config: Any) -> Any:
    return config.graph_options.rewrite_options.custom_optimizers


def _has_entry(config: Any) -> bool:
    return any(entry.name == OPTIMIZER_NAME for entry in _entries(config))


def _put_entry(config: Any, options: Options | None) -> None:
    """Leaves exactly one entry of ours in the config, or none for None."""
    entries = _entries(config)
    for index in reversed(range(len(entries))):
        if entries[index].name == OPTIMIZER_NAME:
            del entries[index]
    if options is not None:
        entry, options = entries.add(), exchange.trial_options(options)
        options.to_entry(entry)
        if start := verifying.name_start(options):
            entry.parameter_map[START].s = start.encode()


def _starts() -> bool:
    """Registers the native passes and starts what answers them; idempotent.

    A failure, such as a TensorFlow that there is no module for, is one warning, and the optimizer
    is off: TensorFlow places the ops itself.
    """
    try:
        service.start()
    except Exception as error:  # whatever it is, the user's program goes on
        warn_once("native", f"the optimizer is off: {error}")
        return False
    return True


# ---- TensorFlow's eager context ----


def _chosen_options(context: Any) -> Options | None:
    chosen: dict[str, Any] = context._optimizer_experimental_options
    return chosen[KEY] if KEY in chosen else environment_options()


def on_tensorflow(_: ModuleType) -> None:
    """Makes the option known; one warning if there is no native module for this TensorFlow."""
    install()
    if is_switched_off():
        return
    try:
        native.load()
    except NativeBuildError as error:
        warn_once("native", f"the optimizer is off: {error}")


def install() -> None:
    """Wraps the members of TensorFlow's Context and Session; a second call changes nothing."""
    from tensorflow.python.client import session
    from tensorflow.python.eager import context

    with _install_lock:
        if not hasattr(context.Context, "_hplacer_installed"):
            _install_options(context.Context)
            _install_config(context.Context)
            _install_session(session.BaseSession)
            context.Context._hplacer_installed = True


def _warn_of_misspelling(options: dict[str, Any]) -> None:
    """TensorFlow ignores a key that it does not know; it has none that looks like ours."""
    for name in options:
        if name != KEY and difflib.get_close_matches(str(name).lower(), [KEY]):
            warn_once(
                f"option {name}", f"unknown option {name!r} is ignored; did you mean {KEY!r}?"
            )


def _install_options(context_class: Any) -> None:
    set_original = context_class.set_optimizer_experimental_options
    get_original = context_class.get_optimizer_experimental_options

    @functools.wraps(set_original)
    def set_options(self: Any, options: Any) -> None:
        global _epoch
        checked = dict(options)
        _warn_of_misspelling(checked)
        if KEY in checked:
            checked[KEY] = Options.from_user(checked[KEY])
            if checked[KEY] is not None and not is_disabled() and _starts():
                verifying.name_start(checked[KEY])
        set_original(self, checked)
        _epoch = object()

    @functools.wraps(get_original)
    def get_options(self: Any) -> Any:
        shown = get_original(self)
        chosen = _chosen_options(self)
        if chosen is not None:
            shown[KEY] = chosen.changed() or True
        elif KEY in self._optimizer_experimental_options:
            shown[KEY] = False
        return shown

    context_class.set_optimizer_experimental_options = set_options
    context_class.get_optimizer_experimental_options = get_options


def _install_config(context_class: Any) -> None:
    config_original = context_class.config
    call_options_original = context_class.function_call_options

    @functools.wraps(config_original.fget)
    def config(self: Any) -> Any:
        result = config_original.fget(self)
        if is_disabled():
            _put_entry(result, None)
            return result
        chosen = _chosen_options(self)
        if chosen is not None or KEY in self._optimizer_experimental_options:
            _put_entry(result, chosen)
        if _has_entry(result) and not _starts():
            _put_entry(result, None)
        return result

    @functools.wraps(call_options_original.fget)
    def function_call_options(self: Any) -> Any:
        if thread_state.epoch is not _epoch:
            thread_state.epoch = _epoch
            cached = self._thread_local_data.function_call_options
            if cached is not None:
                self._thread_local_data.function_call_options = None
                call_options_original.fget(self).executor_type = cached.executor_type
        return call_options_original.fget(self)

    context_class.config = config_original.getter(config)
    context_class.function_call_options = call_options_original.getter(function_call_options)


def _install_session(session_class: Any) -> None:
    original = session_class.__init__

    @functools.wraps(original)
    def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        original(self, target=target, graph=graph, config=_explicit_config(config))

    session_class.__init__ = init


def _explicit_config(config: Any) -> Any:
    """The config for a session that got this one; what is no ConfigProto is left for TensorFlow.

    A config with our entry keeps it, one without gets it only where HPLACER_OPTIONS switched the
    optimizer on. The caller's own object is never changed.
    """
    from tensorflow.core.protobuf import config_pb2

    if not isinstance(config, config_pb2.ConfigProto):
        return config
    has_entry = _has_entry(config)
    options = current_options() if environment_options() is not None else None
    on = not is_disabled() and (has_entry or options is not None) and _starts()
    if on and has_entry and exchange.orders().get("observed") in exchange.WITH_OPTIONS:
        options = _options_of_entry(config)
    elif on == has_entry:
        return config
    result = config_pb2.ConfigProto()
    result.CopyFrom(config)
    _put_entry(result, options if on else None)
    return result


def _options_of_entry(config: Any) -> Options | None:
    """What a config asks for; None, and the pass tells it, if that is invalid."""
    entry = next(entry for entry in _entries(config) if entry.name == OPTIMIZER_NAME)
    try:
        return Options.from_entry(entry)
    except OptionError:
        return None


# ---- Keras ----


def on_keras(keras: ModuleType) -> None:
    """Warns once when a model of this Keras (3, or tf_keras) compiles its step with XLA."""
    # Keras restores a saved compile() only of models that have the one of their trainer class.
    model_class: Any = next(base for base in keras.Model.__mro__ if "compile" in vars(base))
    original = model_class.compile
    if hasattr(original, "_hplacer_original"):
        return

    @functools.wraps(original)
    def compile_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if current_options() is not None and _uses_xla(keras, self):
            warn_once(
                "jit_compile",
                f"the model {self.name!r} is compiled with XLA, whose step is one op that cannot "
                "be spread over devices: pass jit_compile=False to compile()",
            )
        return result

    compile_model._hplacer_original = original  # type: ignore[attr-defined]
    model_class.compile = compile_model


def _uses_xla(keras: ModuleType, model: Any) -> bool:
    backend = keras.backend.backend()
    return backend == "tensorflow" and bool(getattr(model, "jit_compile", False))
