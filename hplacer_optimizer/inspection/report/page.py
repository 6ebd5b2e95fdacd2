"""One self-contained HTML file about a plan: no network, no other files."""

from __future__ import annotations

import os
import string
from html import escape
from importlib import resources

from hplacer_optimizer.inspection.provenance import Provenance
from hplacer_optimizer.inspection.report import sections
from hplacer_optimizer.inspection.report.baselines import default_baseline, simulate_baselines
from hplacer_optimizer.inspection.report.document import pack_step
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.support.new_file import new_file

__all__ = ["write_report"]

_SCRIPTS = ("data", "draw", "timeline", "memory", "scopes", "graph", "main")  # in this order


def write_report(step: SimulatedStep, plan: Provenance, path: str | os.PathLike[str]) -> None:
    """Writes the report of a plan and its step.

    The cheap baselines are planned and simulated now. A reader sees the old file or the new one,
    never a part. Raises OSError if it cannot be written.
    """
    problem, placement, trace = step.problem, step.placement, step.trace
    default = default_baseline(problem)
    others = [*([default] if default else []), *simulate_baselines(problem)]
    page = string.Template(_asset("page.html")).substitute(
        title=escape(f"{plan.label}: plan {plan.short_fingerprint}"),
        style=_asset("page.css"),
        header=sections.header(plan, problem),
        certificate=sections.certificate(plan, trace, step.bound, default),
        baselines=sections.baselines(plan, trace, others),
        learning=sections.learning(plan, step.bound),
        loads=sections.loads(problem, placement, trace),
        provenance=sections.provenance(plan),
        data=pack_step(problem, placement, trace) if trace.has_trace else "",
        script="\n".join(_asset(f"{name}.js") for name in _SCRIPTS),
    )
    with new_file(path) as file:
        file.write(page.encode())


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
