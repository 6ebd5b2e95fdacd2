"""Turns pip's resolution report into the files of requirements/: `make lock`."""

import json
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

HEADER = """\
# Exact versions for development (Python 3.11, tensorflow-cpu), made by `make lock`. To install:
#   pip install --no-deps -r requirements/{part}.lock
# pip refuses a file whose hash is not here: it knows those for Linux.
"""
# --no-deps, because tf_keras requires the package tensorflow, which must not lie over
# tensorflow-cpu. `pip check` therefore names that one requirement as missing, and only that one.
LEFT_OUT = {"tensorflow", "hplacer-optimizer"}
# In the order of their installation: a file holds what no earlier one holds, of "build" and "demo".
EXTRAS = {
    "build": ("build",),
    "demo": ("cpu", "demo"),
    "test": ("bench", "planners", "ray", "test"),
    "docs": ("docs",),
}
INDEX = "https://pypi.org/simple/{name}/"
JSON = "application/vnd.pypi.simple.v1+json"


def main(report: str, directory: str) -> None:
    """Writes the parts' files into `directory` from the pip report in the file `report`."""
    found = [item["metadata"] for item in json.loads(Path(report).read_text())["install"]]
    packages = {canonicalize_name(package["name"]): package for package in found}
    needed = {part: closure(packages, extras) for part, extras in EXTRAS.items()}
    needed["build"] -= closure(packages, ())  # the build does not import the package
    needed["demo"] -= needed["build"]
    for part in ("test", "docs"):
        needed[part] -= needed["build"] | needed["demo"]
    pins = {name: pin(packages[name]) for name in set().union(*needed.values())}
    for part, names in needed.items():
        text = HEADER.format(part=part) + "".join(pins[name] for name in sorted(names))
        Path(directory, f"{part}.lock").write_text(text)


def closure(packages: dict[str, dict], extras: Iterable[str]) -> set[str]:
    """The names of all packages that these extras of ours need."""
    found: set[tuple[str, str]] = set()
    waiting = [("hplacer-optimizer", extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for requirement in map(Requirement, packages[name].get("requires_dist", ())):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                other = canonicalize_name(requirement.name)
                if other not in LEFT_OUT:
                    waiting += [(other, inner) for inner in ("", *requirement.extras)]
    return {name for name, _ in found} - LEFT_OUT


def pin(package: dict) -> str:
    """An entry of a lock file, with the hashes of all files of that version for Linux."""
    name, version = package["name"], package["version"]
    request = urllib.request.Request(INDEX.format(name=name), headers={"Accept": JSON})
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    hashes = sorted(
        file["hashes"]["sha256"]
        for file in files
        if version_of(file["filename"]) == Version(version) and for_linux(file["filename"])
    )
    if not hashes:
        sys.exit(f"{INDEX.format(name=name)}: no file of version {version}")
    lines = [f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in hashes)]
    return " \\\n".join(lines) + "\n"


def for_linux(filename: str) -> bool:
    """Whether it is a wheel for Linux with glibc, or for any system, or the sources."""
    if not filename.endswith(".whl"):
        return True
    platform = filename.removesuffix(".whl").rpartition("-")[2]
    return platform == "any" or "manylinux" in platform


def version_of(filename: str) -> Version | None:
    """The version of a package's file; None of one that no installer takes."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidSdistFilename, InvalidVersion, InvalidWheelFilename):
        return None


if __name__ == "__main__":
    main(*sys.argv[1:])
