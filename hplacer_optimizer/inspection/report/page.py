"""One self-contained HTML file about a plan: no network, no other files."""

from __future__ import annotations

import os
import string
from html import escape
from importlib import resources

from hplacer_optimizer.inspection.provenance import Provenance
from hplacer_optimizer.inspection.report import sections
from hplacer_optimizer.inspection.report.chart_data import pack_steps
from hplacer_optimizer.inspection.report.headline import why_not_shown
from hplacer_optimizer.inspection.report.html import paragraph
from hplacer_optimizer.inspection.report.references import (
    DEFAULT,
    Reference,
    default_reference,
    simulate_references,
)
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.support.new_file import new_file

__all__ = ["write_report"]

_SCRIPTS = ("data", "draw", "tracks", "timeline", "memory", "scopes", "graph", "main")  # in order


def write_report(step: SimulatedStep, plan: Provenance, path: str | os.PathLike[str]) -> None:
    """Writes the report of a plan and its step.

    The references are planned and simulated now. A reader sees the old file or the new one,
    never a part. Raises OSError if it cannot be written.
    """
    default = default_reference(step.problem)
    others = [*([default] if default else []), *simulate_references(step.problem)]
    page = string.Template(_asset("page.html")).substitute(
        title=escape(f"{plan.label}: plan {plan.short_fingerprint}"),
        style=_asset("page.css"),
        header=sections.header(plan, step, default),
        summary=sections.summary(plan, step, default),
        not_shown=paragraph(why_not_shown(default)) if why_not_shown(default) else "",
        waits=sections.waits(step),
        references=sections.references(plan, step.trace, others),
        learning=sections.learning(plan, step.bound),
        loads=sections.loads(step, default),
        provenance=sections.provenance(plan),
        data=_data(step, default) if step.trace.has_trace else "",
        script="\n".join(_asset(f"{name}.js") for name in _SCRIPTS),
    )
    with new_file(path) as file:
        file.write(page.encode())


def _data(step: SimulatedStep, default: Reference | None) -> str:
    """The steps that the charts show."""
    steps = {"This plan": step}
    if default and default.trace:
        steps[DEFAULT] = SimulatedStep(trace=default.trace)
    return pack_steps(steps)


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
