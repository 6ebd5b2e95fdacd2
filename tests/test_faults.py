"""The faults of tests/faults.py are about code that is still there; they are not seeded here."""

from __future__ import annotations

import pytest

from tests.faults import FAULTS, Fault
from tests.processes import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.file)
def test_a_fault_has_its_place_and_its_tests(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text().count(fault.right) == 1
    assert fault.right != fault.wrong
    assert (ROOT / fault.tests).exists()


def test_there_are_thirty() -> None:
    assert len(FAULTS) >= 30
