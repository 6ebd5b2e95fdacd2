"""The families of problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from hplacer_optimizer.bench.problem_families import problems_of
from hplacer_optimizer.errors import OptionError


def test_an_unknown_family_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"unknown name 'cells'; there are convolutional"):
        list(problems_of(tmp_path, leave_out=["cells"]))
