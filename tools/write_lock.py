"""Turns pip's resolution report into requirements.lock: `make lock`."""

import json
import sys
import urllib.request
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

HEADER = """\
# Exact versions for development (Python 3.11, tensorflow-cpu), made by `make lock`. To install:
#   pip install --no-deps -r requirements.lock
# pip refuses a file whose hash is not here: it knows those for Linux.
# --no-deps, because tf_keras requires the package tensorflow, which must not lie over
# tensorflow-cpu. `pip check` therefore names that one requirement as missing, and only that one.
"""
LEFT_OUT = {"tensorflow", "hplacer-optimizer"}
INDEX = "https://pypi.org/simple/{name}/"
JSON = "application/vnd.pypi.simple.v1+json"


def main(report: str, lock: str) -> None:
    """Writes `lock` from the pip report in the file `report`."""
    packages = [item["metadata"] for item in json.loads(Path(report).read_text())["install"]]
    pins = [pin(p["name"], p["version"]) for p in packages if p["name"] not in LEFT_OUT]
    Path(lock).write_text(HEADER + "".join(sorted(pins, key=str.lower)))


def pin(name: str, version: str) -> str:
    """An entry of the lock file, with the hashes of all files of that version for Linux."""
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
