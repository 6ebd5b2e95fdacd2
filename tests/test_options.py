"""Options: checks, the forms a user may give, the round trip through the protocol buffer."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.options import OPTIMIZER_NAME, Options, describe
from hplacer_optimizer.plugin import service

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
seconds = st.floats(0.001, 1e9)
counts = st.integers(1, 2**63 - 1)
options = st.builds(
    Options,
    planner=st.sampled_from(["etf", "my.module:plan", "m:f"]),
    seed=st.integers(0, 2**63 - 1),
    budget_s=seconds,
    min_ops=st.integers(0, 2**63 - 1),
    timeout_s=seconds,
    targets=st.lists(texts, max_size=3),
    devices=st.lists(texts, max_size=3),
    batch_size=st.none() | counts,
    loop_trip_count=counts,
    bitwise=st.booleans(),
    cost_table=st.none() | texts,
    cache=st.none() | texts,
    cache_max_bytes=st.integers(0, 2**63 - 1),
    trust_shared=st.booleans(),
    on_miss=st.sampled_from(["trial", "plan", "background", "learn", "skip"]),
    min_gain=st.none() | st.floats(-1, 1e6),
    host_offload=st.booleans(),
    verify=st.booleans(),
    plan=st.none() | texts,
)


def test_every_option_is_described() -> None:
    lines = describe().splitlines()
    assert [line.split()[0] for line in lines] == [f.name for f in dataclasses.fields(Options)]


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("budget_s", 7, 7.0),
        ("budget_s", np.float32(0.1), 0.1),
        ("timeout_s", 0.123456789, 0.123457),
        ("seed", np.int64(3), 3),
        ("targets", ["a", "b"], ("a", "b")),
        ("targets", "train_op", ("train_op",)),
        ("cache", Path("/plans"), "/plans"),
        ("plan", Path("/plans/x.hplan"), "/plans/x.hplan"),
        ("min_gain", -1, -1.0),
        ("min_gain", 0.2, 0.2),
        ("planner", "no_such_module:plan", "no_such_module:plan"),
    ],
)
def test_values_become_the_declared_type(name: str, given: Any, kept: Any) -> None:
    value = getattr(Options(**{name: given}), name)
    assert value == kept
    assert type(value) is type(kept)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("seed", True, "seed: must be an integer of at least 0, got True"),
        ("seed", -1, "at least 0, got -1"),
        ("seed", 2**63, "at most 9223372036854775807"),
        ("seed", 1.0, "got 1.0"),
        ("seed", None, "got None"),
        ("batch_size", 0, "at least 1, got 0"),
        ("loop_trip_count", 0, "at least 1, got 0"),
        ("budget_s", 0, "budget_s: must be a number from 0.001 to 1e+09, got 0"),
        ("budget_s", False, "got False"),
        ("budget_s", float("nan"), "got nan"),
        ("timeout_s", float("inf"), "got inf"),
        ("timeout_s", "5", "got '5'"),
        ("targets", [1], "targets: must be a non-empty string, got 1"),
        ("targets", {"a"}, "targets: must be a list of strings"),
        ("devices", "", "devices: must be a non-empty string, got ''"),
        ("cache", "", "cache: must be a non-empty string"),
        ("cache", "\ud800", "cache: must be valid Unicode"),
        ("min_gain", -1.1, "min_gain: must be a number from -1 to 1e+06, got -1.1"),
        ("min_gain", "much", "got 'much'"),
        ("host_offload", None, "host_offload: must be True or False, got None"),
        ("plan", "", "plan: must be a non-empty string, got ''"),
        ("trust_shared", 1, "trust_shared: must be True or False, got 1"),
        (
            "on_miss",
            "wait",
            "on_miss: must be 'trial' or 'plan' or 'background' or 'learn' or 'skip'",
        ),
        ("planner", "eft", "planner: unknown name 'eft'; did you mean 'heft'? valid are auto, "),
        ("planner", "a module:f", "'package.module:function'"),
    ],
)
def test_an_invalid_value_is_refused_by_name(name: str, value: Any, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options(**{name: value})
    assert expected in str(caught.value)


@settings(deadline=None)  # the first example imports TensorFlow
@given(options)
def test_round_trip_through_the_protocol_buffer(given: Options) -> None:
    rewriter = pytest.importorskip("tensorflow.core.protobuf.rewriter_config_pb2")
    entry = rewriter.RewriterConfig.CustomGraphOptimizer()
    entry.parameter_map["left_over"].b = True
    given.to_entry(entry)
    received = type(entry).FromString(entry.SerializeToString())
    assert received.name == OPTIMIZER_NAME
    assert set(received.parameter_map) == set(given.changed())
    assert Options.from_parameters(received.parameter_map) == given


def test_an_entry_can_have_every_option() -> None:
    rewriter = pytest.importorskip("tensorflow.core.protobuf.rewriter_config_pb2")
    entry = rewriter.RewriterConfig.CustomGraphOptimizer()
    Options(seed=4).to_entry(entry, changed_only=False)
    names = {field.name for field in dataclasses.fields(Options)}
    absent = {"batch_size", "cost_table", "cache", "min_gain", "plan"}  # None
    assert names - set(entry.parameter_map) == absent
    assert Options.from_parameters(entry.parameter_map) == Options(seed=4, timeout_s=30.0)


@pytest.mark.parametrize(
    ("given", "wait_s", "planner_s"),
    [
        ({}, 30.0, 10.0),
        ({"budget_s": 60.0}, 80.0, 60.0),
        ({"budget_s": 33.3333}, 46.6666, 33.3333),
        ({"budget_s": 60.0, "on_miss": "learn"}, 30.0, 60.0),  # the pass adds the budget
        ({"budget_s": 60.0, "on_miss": "background"}, 30.0, None),
        ({"timeout_s": 5.0}, 5.0, 4.0),
    ],
)
def test_the_wait_is_long_enough_for_the_budget(
    given: dict[str, Any], wait_s: float, planner_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen_by_the_pass(given) == pytest.approx(wait_s)
    if planner_s is not None:
        assert planner_seconds(given, monkeypatch) == (pytest.approx(planner_s), [])


def test_a_wait_that_is_too_short_for_the_budget_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"budget_s": 60.0, "timeout_s": 20.0}
    assert seen_by_the_pass(given) == 20.0
    warning = (
        "the planner has 16 s of budget_s=60, as training waits for timeout_s=20: set timeout_s=80"
    )
    assert planner_seconds(given, monkeypatch) == (16.0, [warning])


def entry_of(given: dict[str, Any], **more: Any) -> Any:
    rewriter = pytest.importorskip("tensorflow.core.protobuf.rewriter_config_pb2")
    entry = rewriter.RewriterConfig.CustomGraphOptimizer()
    Options(**given).to_entry(entry, **more)
    return entry


def seen_by_the_pass(given: dict[str, Any]) -> float:
    """What its wait is: the entry's, else that of the defaults which it was registered with."""
    entries = (entry_of({}, changed_only=False), entry_of(given))
    waits = [e.parameter_map["timeout_s"].f for e in entries if "timeout_s" in e.parameter_map]
    return float(waits[-1])


def planner_seconds(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[float, list[str]]:
    """What the planner may take of it, and the warnings."""
    told: list[str] = []
    monkeypatch.setattr(service, "warn_once", lambda key, text: told.append(text))
    return service._seconds(Options.from_parameters(entry_of(given).parameter_map)), told


@given(options)
def test_what_changed_gives_the_options_back(given: Options) -> None:
    assert Options.from_user(given.changed() or True) == given
    assert Options.from_environment(json.dumps(given.changed())) == given


def test_what_a_user_may_give() -> None:
    assert Options.from_user(True) == Options()
    assert Options.from_user({}) == Options()
    assert Options.from_user({"seed": 4}) == Options(seed=4)
    assert Options.from_user(Options(seed=4)) == Options(seed=4)
    assert Options.from_user(False) is None
    assert Options.from_user(None) is None


@pytest.mark.parametrize("value", [1, 0, "on", ["seed"]])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match=r"True, False or a dict of options.*planner, seed"):
        Options.from_user(value)


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(OptionError) as caught:
        Options.from_user({"bugdet_s": 3})
    assert "unknown option 'bugdet_s'; did you mean 'budget_s'? valid are planner" in str(
        caught.value
    )
    with pytest.raises(OptionError, match="unknown option 3; valid are"):
        Options.from_user({3: 3})


def test_a_parameter_of_a_wrong_kind_is_refused() -> None:
    attributes = pytest.importorskip("tensorflow.core.framework.attr_value_pb2")
    with pytest.raises(OptionError, match="seed: must be an integer"):
        Options.from_parameters({"seed": attributes.AttrValue(s=b"1")})
    with pytest.raises(OptionError, match="seed: must be a string, bool"):
        Options.from_parameters({"seed": attributes.AttrValue()})
    with pytest.raises(OptionError, match="cache: is not UTF-8"):
        Options.from_parameters({"cache": attributes.AttrValue(s=b"\xff")})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Options()),
        ("1", Options()),
        (" ON ", Options()),
        ("0", None),
        ("off", None),
        ('{"seed": 1, "targets": ["a,b"]}', Options(seed=1, targets=("a,b",))),
        ("seed=1, budget_s=2.5 ,", Options(seed=1, budget_s=2.5)),
        ("budget_s=20", Options(budget_s=20)),
        ("targets=a;b ; c", Options(targets=("a", "b", "c"))),
        ("targets=", Options()),
        ("trust_shared=on,on_miss=skip", Options(trust_shared=True, on_miss="skip")),
        ("batch_size=none,cache=gs://b/d?x=y", Options(cache="gs://b/d?x=y")),
        ("batch_size=32", Options(batch_size=32)),
    ],
)
def test_the_environment_variable(text: str, expected: Options | None) -> None:
    assert Options.from_environment(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed", "'seed' is not key=value"),
        ("sed=1", "did you mean 'seed'"),
        ("seed=x", "seed: must be an integer of at least 0, got 'x'"),
        ("trust_shared=maybe", "trust_shared: must be True or False, got 'maybe'"),
        ("budget_s=soon", "budget_s: must be a number"),
        ('{"seed": }', "not valid JSON"),
        ('{"seed": "1"}', "seed: must be an integer"),
    ],
)
def test_an_invalid_environment_variable(text: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options.from_environment(text)
    assert expected in str(caught.value)
