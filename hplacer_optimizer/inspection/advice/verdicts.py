"""The advice as one sentence, and what would change it as another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hplacer_optimizer.inspection.advice.changes import Tried, best
from hplacer_optimizer.inspection.advice.ways import BOTH, ONE, PLAN, REPLICAS, Way
from hplacer_optimizer.problem.prediction_error import LEAST_GAIN
from hplacer_optimizer.support.formats import format_bytes, format_ns, times_as_fast

__all__ = ["change_sentence", "verdict"]

_NOT_FOR_THIS = "this optimizer is not the answer"


def verdict(ways: Sequence[Way], error: float, against: Sequence[Way] = ()) -> str:
    """What to do.

    Args:
        ways: as predicted.
        error: by how much a predicted gain may be too large, as a share.
        against: the same ways if the costs are as wrong as they may be, in favour of one device; a
            gain that is left then is sure, whatever `error` says. Empty: nobody knows them.
    """
    found = best(list(ways))
    is_sure = _certainty(ways, error, against)
    if found is None:
        return _nothing_fits(ways)
    tight = ""
    if found.memory is not None and found.memory.is_tight:
        tight = " Its memory is tight: what frameworks add may not fit."
    single = best([way for way in ways if way.kind == ONE])
    if single is None:
        return f"No single device has enough memory; {_use(found, ways, is_sure)}.{tight}"
    if found.kind == ONE or (found.kind == PLAN and found.devices == 1):
        return f"{_name(single)} is enough, and nothing else is faster: {_NOT_FOR_THIS}.{tight}"
    if not is_sure(single, found):
        times = times_as_fast(_gain(single, found))
        return (
            f"{_name(single)} is enough: {found.name} is predicted {times}, which is "
            f"within the error of the prediction. Measure before you rent more.{tight}"
        )
    return f"{_use(found, ways, is_sure)}: {_compared(single, found)}.{tight}"


def _certainty(
    ways: Sequence[Way], error: float, against: Sequence[Way]
) -> Callable[[Way, Way], bool]:
    """Whether one way is certainly faster than another."""

    def is_sure(slow: Way, fast: Way) -> bool:
        if _gain(slow, fast) - 1 > error:
            return True
        if not against:
            return False
        slow, fast = against[ways.index(slow)], against[ways.index(fast)]
        return _gain(slow, fast) > 1 + LEAST_GAIN

    return is_sure


def change_sentence(
    ways: Sequence[Way], tried: Sequence[Tried], error: float = 0.0, against: Sequence[Way] = ()
) -> str:
    """Which of the changes that were tried make another way the best.

    `error` and `against`: as of `verdict`, which advises one device where nothing else is certain.
    """
    found = best(list(ways))
    kind = found.kind if found else None
    advised = {kind}
    single = best([way for way in ways if way.kind == ONE])
    if found and single and not _certainty(ways, error, against)(single, found):
        advised.add(ONE)
    others = [one for one in tried if one.best not in advised and one.best is not None]
    lost = [one for one in tried if one.best is None and kind is not None]
    parts = [f"with {one.change}, {one.best_name} would be the best way" for one in others]
    parts += [f"with {one.change}, nothing would fit" for one in lost]
    if not parts:
        listed = ", ".join(one.change.partition(" (")[0] for one in tried)
        return f"None of these would change that: {listed}."
    return f"What would change that: {'; '.join(parts)}."


def _use(found: Way, ways: Sequence[Way], is_sure: Callable[[Way, Way], bool]) -> str:
    if found.kind == REPLICAS:
        return f"Use {found.name}; {_NOT_FOR_THIS}"
    replicas = best([way for way in ways if way.kind == REPLICAS])
    is_close = replicas is not None and not is_sure(replicas, found)
    if found.kind in (PLAN, BOTH) and is_close and replicas is not None:
        times = times_as_fast(_gain(replicas, found))
        return (
            f"Use {replicas.name}, which is simpler, or measure {found.name}: it is predicted "
            f"{times}, which is within the error of the prediction"
        )
    return f"Use {found.name}, by this optimizer"


def _compared(single: Way, found: Way) -> str:
    times = times_as_fast(_gain(single, found))
    return f"{times} as {single.name} ({_time(found)} instead of {_time(single)})"


def _gain(slow: Way, fast: Way) -> float:
    return (slow.step_time_ns or 0) / max(fast.step_time_ns or 0, 1)


def _time(way: Way) -> str:
    return format_ns(way.step_time_ns or 0)


def _name(way: Way) -> str:
    return way.name[:1].upper() + way.name[1:]


def _nothing_fits(ways: Sequence[Way]) -> str:
    """Names the way that lacks least."""
    known = [way for way in ways if way.memory is not None]
    if not known:
        why = next((way.infeasible_because for way in ways), "there is no device")
        return f"Nothing runs on this machine: {why}."
    nearest = max(known, key=lambda way: way.memory.free_bytes if way.memory else 0)
    memory = nearest.memory
    assert memory is not None
    return (
        f"Nothing fits: even {nearest.name} needs {format_bytes(memory.least_bytes)} on "
        f"{memory.device}, which has {format_bytes(memory.memory_bytes)}. Take a smaller batch or "
        "devices with more memory."
    )
