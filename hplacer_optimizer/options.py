"""The options of the optimizer: declared once, here, and checked when built.

They travel to the native pass as the `RewriterConfig.custom_optimizers` entry "HierarchicalPlacer",
whose `parameter_map` holds the options that differ from their default.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import numbers
import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.planners import PLANNERS, get_planner, is_own
from hplacer_optimizer.support.keywords import unknown_name
from hplacer_optimizer.support.quantities import INT64_MAX

OPTIMIZER_NAME = "HierarchicalPlacer"
# Parameters of an entry that are no options:
START = "start"  # names the start of training whose steps are timed
TRIAL = "trial"  # true: of a call that runs with the plans that are tried

EVERY_PLAN = -1  # of option min_gain
_YEARS_S = 1e9
WAIT_S = 30.0  # where option timeout_s does not say it
PLANNING_SHARE = 0.8  # of the wait: capture, simulation and storing need the rest
_BEYOND_S = 5.0  # the same, at least


def _option(
    default: object,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    limits = {"minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata={"doc": doc, **limits})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the optimizer does with a graph.

    Lists and single strings are accepted where a tuple is declared, integers where a float is.
    Floats keep six significant digits, so that they are the same on both sides of the protocol
    buffer, which holds 32-bit floats.

    Raises:
        OptionError: an option is unknown or its value wrong; names the option and the fix.

    Example:
        >>> import hplacer_optimizer as hp
        >>> options = hp.Options(planner="etf", budget_s=5)
        >>> options.budget_s, options.min_ops
        (5.0, 20)
        >>> options.changed()  # what `set_experimental_options` takes under "hierarchical_placer"
        {'planner': 'etf', 'budget_s': 5.0}
    """

    planner: str = _option(
        "auto", "name of the planner, or your own one as package.module:function"
    )
    seed: int = _option(0, "seed of every random choice", minimum=0, maximum=INT64_MAX)
    budget_s: float = _option(
        10.0,
        "seconds that a planner may take; it ends earlier if nothing gets better, and at 80% of "
        "timeout_s if you set that",
        minimum=0.001,
        maximum=_YEARS_S,
    )
    min_ops: int = _option(20, "graphs with fewer ops are left alone", minimum=0, maximum=INT64_MAX)
    timeout_s: float | None = _option(
        None,
        "longest wait of the training process for a lookup or a plan, in seconds; None: 30, or "
        "longer if budget_s needs it",
        minimum=0.001,
        maximum=_YEARS_S,
    )
    targets: tuple[str, ...] = _option(
        (), "op names of the training step in a TF1 graph; empty: found automatically"
    )
    devices: tuple[str, ...] = _option(
        (),
        "device names or partial specs the planner may use; "
        "empty: every device of the session's own task",
    )
    batch_size: int | None = _option(
        None, "batch size to assume if the graph has none", minimum=1, maximum=INT64_MAX
    )
    loop_trip_count: int = _option(
        10, "trips assumed for a while loop without a constant bound", minimum=1, maximum=INT64_MAX
    )
    bitwise: bool = _option(
        False,
        "results are equal to those of TensorFlow's own placement to the last bit: a plan uses "
        "devices of one kind, and takes effect after TensorFlow has rewritten the graph",
    )
    cost_table: str | None = _option(
        None, "file of measured op costs (docs/reference/costs.md); None: all costs are estimated"
    )
    cache: str | None = _option(
        None,
        "plan store: a directory or URL, or several with ; between them, nearest first; "
        "None: the default directory",
    )
    cache_max_bytes: int = _option(
        2**30,
        "largest size of the plans in a local directory; the least recently used are removed",
        minimum=0,
        maximum=INT64_MAX,
    )
    trust_shared: bool = _option(False, "read plans from a directory that others can write")
    on_miss: str = _option(
        "trial",
        "what to do without a stored plan: 'trial': start at once, search beside training, and "
        "keep the plan if its steps are measured to be faster; 'plan': search before the first "
        "step; 'learn': the same, for all of budget_s; 'background': search for the next start; "
        "'skip': do not search",
        choices=("trial", "plan", "background", "learn", "skip"),
    )

    min_gain: float | None = _option(
        None,
        "predicted gain, as a share, that a plan needs to take effect; -1: every plan takes "
        "effect; None: more than such predictions may be wrong",
        minimum=EVERY_PLAN,
        maximum=1e6,
    )
    host_offload: bool = _option(
        False,
        "let planners move ops from an accelerator to its host's CPU, even if costs are estimated",
    )
    verify: bool = _option(
        False,
        "for sessions: starts run with the plan and without it in turn and time their steps, "
        "until it is known which is faster; a slower plan is retired",
    )
    plan: str | None = _option(
        None,
        "file of the one plan that may take effect; other graphs keep TensorFlow's own placement, "
        "and nothing is planned",
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check = _CHECKS[str(field.type)]
            object.__setattr__(self, field.name, check(field, getattr(self, field.name)))
        _check_planner(self.planner)

    @classmethod
    def from_user(cls, value: object) -> Options | None:
        """What a user may give: True, a dict of options, Options; None where False or None."""
        if value is None or value is False:
            return None
        if value is True:
            return cls()
        if isinstance(value, Options):
            return value
        if isinstance(value, Mapping):
            return cls.from_parameters(value)
        raise OptionError(
            f"hierarchical_placer: must be True, False or a dict of options, got {value!r}; "
            f"valid options are {', '.join(_FIELDS)}"
        )

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Options:
        """From AttrValue messages, as in a `parameter_map`, or plain values, by option name."""
        for name in parameters:
            _check_name(name)
        return cls(**{name: _plain(name, value) for name, value in parameters.items()})

    @classmethod
    def from_entry(cls, entry: Any) -> Options:
        """From a `RewriterConfig.CustomGraphOptimizer` message; START and TRIAL are no options."""
        parameters = entry.parameter_map.items()
        return cls.from_parameters(
            {name: value for name, value in parameters if name not in (START, TRIAL)}
        )

    @classmethod
    def from_environment(cls, text: str) -> Options | None:
        """From the value of HPLACER_OPTIONS.

        "1", "on" or nothing: the defaults; "0" or "off": None; else a JSON object, or
        `key=value,key=value` with `;` between the items of a list.
        """
        stripped = text.strip()
        if stripped.lower() in ("", "1", "on"):
            return cls()
        if stripped.lower() in ("0", "off"):
            return None
        if stripped.startswith("{"):
            try:
                return cls.from_parameters(json.loads(stripped))
            except (json.JSONDecodeError, RecursionError) as error:
                raise OptionError(f"options {text!r} are not valid JSON: {error}") from error
        parameters = {}
        for part in filter(str.strip, stripped.split(",")):
            name, equals, value = part.partition("=")
            if not equals:
                raise OptionError(
                    f"options {text!r}: {part!r} is not key=value; give key=value,key=value, "
                    "a JSON object, 'on' or 'off'"
                )
            parameters[name.strip()] = _from_text(name.strip(), value.strip())
        return cls.from_parameters(parameters)

    @property
    def wait_s(self) -> float:
        """Longest wait of the training process for a lookup or a plan, in seconds."""
        if self.timeout_s is not None:
            return self.timeout_s
        # For "learn" the pass itself adds the budget; what cannot be tried is planned at once.
        if self.on_miss not in ("plan", "trial"):
            return WAIT_S
        return min(max(WAIT_S, self.budget_s / PLANNING_SHARE + _BEYOND_S), _YEARS_S)

    def changed(self) -> dict[str, Any]:
        """The options that differ from their default, by name; `from_user` takes this back."""
        return {name: value for name, value in vars(self).items() if value != _FIELDS[name].default}

    def to_entry(self, entry: Any, *, changed_only: bool = True) -> None:
        """Writes name and options into a `RewriterConfig.CustomGraphOptimizer` message.

        Only the options that differ from their default, or all but those that are None. The wait
        is that which the budget needs.
        """
        entry.Clear()
        entry.name = OPTIMIZER_NAME
        options = self.changed() if changed_only else {**vars(self)}
        if not changed_only or self.wait_s != WAIT_S:
            options["timeout_s"] = self.wait_s
        for name, value in options.items():
            if value is None:
                continue
            attribute = entry.parameter_map[name]
            if isinstance(value, str):
                attribute.s = value.encode()
            elif isinstance(value, bool):
                attribute.b = value
            elif isinstance(value, int):
                attribute.i = value
            elif isinstance(value, float):
                attribute.f = value
            else:
                attribute.list.s.extend(item.encode() for item in value)


_FIELDS = {field.name: field for field in dataclasses.fields(Options)}


def _check_name(name: object) -> None:
    if name not in _FIELDS:
        raise unknown_name("option", name, _FIELDS)


# ---- one check per declared type: (field, value) -> the value as the type declares it ----


def _refuse(field: dataclasses.Field[Any], expected: str, value: object) -> OptionError:
    return OptionError(f"{field.name}: must be {expected}, got {value!r}")


def _text(field: dataclasses.Field[Any], value: object) -> str:
    choices = field.metadata["choices"]
    expected = " or ".join(map(repr, choices)) if choices else "a non-empty string"
    if not isinstance(value, str) or not value or (choices and value not in choices):
        raise _refuse(field, expected, value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _refuse(field, "valid Unicode", value) from error
    return value


def _path(field: dataclasses.Field[Any], value: object) -> str:
    return _text(field, os.fspath(value) if isinstance(value, os.PathLike) else value)


def _texts(field: dataclasses.Field[Any], value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, (tuple, list)):
        raise _refuse(field, "a list of strings", value)
    return tuple(_text(field, item) for item in value)


def _bool(field: dataclasses.Field[Any], value: object) -> bool:
    if not isinstance(value, bool):
        raise _refuse(field, "True or False", value)
    return value


def _int(field: dataclasses.Field[Any], value: object) -> int:
    minimum, maximum = field.metadata["minimum"], field.metadata["maximum"]
    expected = f"an integer of at least {minimum}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise _refuse(field, expected, value)
    if value > maximum:
        raise _refuse(field, f"an integer of at most {maximum}", value)
    if value < minimum:
        raise _refuse(field, expected, value)
    return int(value)


def _float(field: dataclasses.Field[Any], value: object) -> float:
    minimum, maximum = field.metadata["minimum"], field.metadata["maximum"]
    expected = f"a number from {minimum:g} to {maximum:g}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _refuse(field, expected, value)
    if not minimum <= value <= maximum:
        raise _refuse(field, expected, value)
    return float(f"{np.float32(value):.6g}")


def _or_none(check: Callable[[dataclasses.Field[Any], object], Any]) -> Callable[..., Any]:
    return lambda field, value: None if value is None else check(field, value)


_CHECKS: dict[str, Callable[[dataclasses.Field[Any], object], Any]] = {
    "str": _text,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "tuple[str, ...]": _texts,
    "int | None": _or_none(_int),
    "float | None": _or_none(_float),
    "str | None": _or_none(_path),
}


def _check_planner(name: str) -> None:
    """A name of the table, or the form of one's own, which is imported only when it plans."""
    if ":" not in name or name.partition(":")[0] in PLANNERS:
        get_planner(name)
    elif not is_own(name):
        raise OptionError(f"planner: must be a name or 'package.module:function', got {name!r}")


# ---- other forms of the values ----


def _plain(name: str, value: Any) -> Any:
    """A Python value of an AttrValue message; anything else is returned as it is."""
    if not hasattr(value, "WhichOneof"):
        return value
    kind: str = value.WhichOneof("value") or "func"  # no value at all is as wrong as a function
    content: Any = getattr(value, kind)
    try:
        if kind == "s":
            return content.decode()
        if kind == "list":
            return tuple(item.decode() for item in content.s)
    except UnicodeDecodeError as error:
        raise OptionError(f"{name}: is not UTF-8 text: {error}") from error
    if kind not in ("b", "i", "f"):
        raise OptionError(f"{name}: must be a string, bool, int, float or list, got {value}")
    return content


def _from_text(name: str, text: str) -> Any:
    """The value that a text stands for; what cannot be read is left for the check to refuse."""
    _check_name(name)
    declared = str(_FIELDS[name].type)
    if declared.endswith("| None") and text.lower() in ("", "none"):
        return None
    if declared.startswith("tuple"):
        return tuple(item.strip() for item in text.split(";") if item.strip())
    if declared == "bool":
        words = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
        return words.get(text.lower(), text)
    try:
        if declared.startswith("int"):
            return int(text)
        return float(text) if declared.startswith("float") else text
    except ValueError:
        return text


def describe() -> str:
    """One line per option: name, default, what it is for."""
    lines = []
    for name, field in _FIELDS.items():
        default = field.default if isinstance(field.default, str) else json.dumps(field.default)
        lines.append(f"  {name:<16} {field.metadata['doc']} (default: {default})")
    return "\n".join(lines)


Options.__doc__ = f"{inspect.getdoc(Options)}\n\nAttributes:\n{textwrap.indent(describe(), '  ')}\n"
