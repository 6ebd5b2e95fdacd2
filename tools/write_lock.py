"""Turns pip's resolution report into requirements.lock: `make lock`."""

import json
import sys
from pathlib import Path

HEADER = """\
# Exact versions for development (Python 3.11, tensorflow-cpu), made by `make lock`. To install:
#   pip install --no-deps -r requirements.lock
# --no-deps, because tf_keras requires the package tensorflow, which must not lie over
# tensorflow-cpu. `pip check` therefore names that one requirement as missing, and only that one.
"""
LEFT_OUT = {"tensorflow", "hplacer-optimizer"}


def main(report: str, lock: str) -> None:
    """Writes `lock` from the pip report in the file `report`."""
    packages = [item["metadata"] for item in json.loads(Path(report).read_text())["install"]]
    pins = [f"{p['name']}=={p['version']}\n" for p in packages if p["name"] not in LEFT_OUT]
    Path(lock).write_text(HEADER + "".join(sorted(pins, key=str.lower)))


if __name__ == "__main__":
    main(*sys.argv[1:])
