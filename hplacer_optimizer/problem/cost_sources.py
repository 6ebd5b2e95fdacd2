"""Where the costs of a problem came from, as plans, captures and predictions name it."""

ANALYTIC = "analytic"  # estimated, by a cost model and data sheets
MEASURED = "measured"  # all of them, in a cost table
PARTLY_MEASURED = "measured and analytic"
GIVEN = "given"  # by a problem file


def in_words(cost_source: str) -> str:
    """For people, to whom costs are estimated or measured."""
    return cost_source.replace(ANALYTIC, "estimated")
