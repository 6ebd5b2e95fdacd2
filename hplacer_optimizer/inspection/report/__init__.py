"""The HTML report of a plan: figures and tables from Python, charts by JavaScript in the page.

SimulatedStep, Provenance --sections.py--> figures, tables --+
|                                                            +--page.py--> report.html
+---------chart_data.py, columns.py--> packed arrays --------+
assets/*.js draw them
"""

from __future__ import annotations

from hplacer_optimizer.inspection.report.page import write_report

__all__ = ["write_report"]
