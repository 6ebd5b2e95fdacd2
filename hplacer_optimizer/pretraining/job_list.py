"""A list of jobs: YAML, format `hplacer-pretrain/1` (docs/how-to/pretraining.md), read strictly.

Each entry is a product: graphs x machines x planners x seeds. What an entry leaves out it takes
from `defaults`; paths are relative to the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hplacer_optimizer.errors import DocumentError, JobListError, OptionError
from hplacer_optimizer.machines import machine_names
from hplacer_optimizer.pretraining.job_fields import READERS, JobFields
from hplacer_optimizer.pretraining.jobs import Job
from hplacer_optimizer.support.document import MAX_BYTES, Field, parse_yaml

FORMAT = "hplacer-pretrain/1"
MAX_JOBS = 100_000

_OF_AN_ENTRY = ("graphs", "capture")  # and of no `defaults`


def read_jobs(path: Path) -> list[Job]:
    """The jobs of a file, in its order.

    Raises JobListError, which names the field and the file, or OSError if it cannot be opened.
    """
    with open(path, "rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    try:
        document = parse_yaml(data).record(("format", "jobs"), ("defaults",))
        if document["format"].value != FORMAT:
            raise document["format"].error(
                f"expected {FORMAT!r}, found {document['format'].value!r}"
            )
        defaults = {}
        if "defaults" in document:
            shared = tuple(name for name in READERS if name not in _OF_AN_ENTRY)
            defaults = document["defaults"].record((), shared)
        jobs: list[Job] = []
        for entry in document["jobs"].sequence():
            jobs += _jobs(entry, defaults, path.parent)
            if len(jobs) > MAX_JOBS:
                raise entry.error(f"more than {MAX_JOBS} jobs")
        if not jobs:
            raise document["jobs"].error("the list is empty")
    except (DocumentError, OptionError) as error:
        raise JobListError(f"{error} (in file '{path}')") from None
    return jobs


def _jobs(entry: Field, defaults: dict[str, Field], where: Path) -> Iterator[Job]:
    own = entry.record((), tuple(READERS))
    if ("graphs" in own) == ("capture" in own):
        raise entry.error("give either graphs or capture")
    fields = {name: READERS[name](field) for name, field in (defaults | own).items()}
    return _resolved(JobFields(**fields), where).jobs()


def _resolved(fields: JobFields, where: Path) -> JobFields:
    """With paths that are relative to the file made so to the working directory."""
    script = list(fields.capture)
    if script and script[0] != "-m":
        script[0] = str(where / script[0])
    return replace(
        fields,
        graphs=[str(where / name) for name in fields.graphs],
        capture=script,
        machines=[
            name if name in machine_names() else str(where / name) for name in fields.machines
        ],
        cost_table=fields.cost_table and str(where / fields.cost_table),
    )
