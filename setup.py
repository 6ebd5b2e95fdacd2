"""Builds the native modules with CMake: `_engine`, and for TensorFlow 2.21 `_tf_2_21` and so on.

CMakeLists.txt describes the build. This file finds what it needs. By default they are built for the
TensorFlow that is installed in the building environment, in build/native/, where only what changed
is compiled again.

`make wheel` builds the modules of all Pythons and TensorFlow releases together, in build/releases/,
because most of the code does not depend on Python. It uses three variables of the environment:

    HPLACER_TENSORFLOWS   packages with headers, as VERSION=DIRECTORY:VERSION=DIRECTORY
    HPLACER_PYTHONS       Pythons, as SUFFIX=DIRECTORY:SUFFIX=DIRECTORY (see CMakeLists.txt)
    HPLACER_MODULES       a directory of modules that are built already: a wheel takes those of its
                          Python from there, and nothing is compiled

HPLACER_REPOSITORY is the address where the files of this checkout can be read, as in
https://example.org/project/blob/v0.1.0. A package index shows README.md with links to there.

`setup.py build_modules --targets=NAME,NAME` leaves modules in the build directory.

`build_ext --engine` builds `_engine` alone, for which no TensorFlow has to be there. With
HPLACER_WITHOUT_EMULATOR=1 the emulator of GPUs is left out, which takes a sixth of the build.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NoReturn

import setuptools
from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
# Of the installed TensorFlow, or of those that HPLACER_TENSORFLOWS names.
if os.environ.get("HPLACER_TENSORFLOWS"):
    BUILD = ROOT / "build" / "releases"
else:
    BUILD = ROOT / "build" / "native" / str(sysconfig.get_config_var("SOABI"))

TF_OLDEST = (2, 16)
TF_NEWEST = (2, 21)
TF_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-cpu-aws",
    "tensorflow-rocm",
    "intel-tensorflow",
    "tf-nightly",
    "tf-nightly-cpu",
)
COMMANDS_WITH_MODULES = {"build_ext", "bdist_wheel", "editable_wheel"}
HEADER_PACKAGES = ("pybind11", "nlohmann-json")
# A TensorFlow source file takes about 1 GB to compile.
BYTES_PER_JOB = 1.5 * 2**30


def fail(message: str) -> NoReturn:
    # Not an exception: pip and setuptools would bury the sentence under two tracebacks.
    sys.exit(f"hplacer-optimizer: {message}")


@dataclass(frozen=True)
class TensorFlow:
    """A TensorFlow package, found without importing it, which would take seconds."""

    directory: Path
    version: str  # as TF_Version() spells it: 2.21.0-rc1, where the package says 2.21.0rc1

    @staticmethod
    def all() -> list[TensorFlow]:
        """What HPLACER_TENSORFLOWS names, else the installed one."""
        named = os.environ.get("HPLACER_TENSORFLOWS", "")
        if not named:
            return [TensorFlow.installed()]
        pairs = [entry.partition("=") for entry in named.split(os.pathsep)]
        return [TensorFlow._checked(Path(where).resolve(), version) for version, _, where in pairs]

    @staticmethod
    def installed() -> TensorFlow:
        spec = importlib.util.find_spec("tensorflow")
        versions = set()
        for name in TF_DISTRIBUTIONS:
            try:
                versions.add(importlib.metadata.version(name))
            except importlib.metadata.PackageNotFoundError:
                continue
        if spec is None or spec.origin is None or not versions:
            fail(
                "building needs an installed TensorFlow and found none; run `pip install "
                "'setuptools>=77' cmake ninja pybind11 nlohmann-json 'tensorflow>=2.16,<2.22'` and "
                "then `pip install --no-build-isolation '.[tf]'` (without --no-build-isolation pip "
                "hides the installed TensorFlow)."
            )
        if len(versions) > 1:
            fail(
                "several TensorFlow packages of different versions are installed in one place "
                f"({', '.join(sorted(versions))}); uninstall all of them and install one."
            )
        return TensorFlow._checked(Path(spec.origin).parent, versions.pop())

    @staticmethod
    def _checked(directory: Path, version: str) -> TensorFlow:
        if not (directory / "include" / "tensorflow").is_dir():
            fail(f"{directory}: is no TensorFlow package with headers.")
        release = tuple(int(part) for part in version.split(".")[:2])
        if not TF_OLDEST <= release <= TF_NEWEST:
            fail(
                f"{directory} holds TensorFlow {version}, but the native module supports "
                f"{'.'.join(map(str, TF_OLDEST))} to {'.'.join(map(str, TF_NEWEST))}."
            )
        return TensorFlow(directory, re.sub(r"(\d)(rc|dev)", r"\1-\2", version))

    @property
    def modules(self) -> list[str]:
        major, minor, *_ = self.version.split(".")
        without_emulator = os.environ.get("HPLACER_WITHOUT_EMULATOR") == "1"
        sides = ["tf"] if without_emulator else ["tf", "emulator"]
        return [f"_{side}_{major}_{minor}" for side in sides]


def find_compiler() -> list[str]:
    if sys.platform != "linux":
        fail(f"the native modules build on Linux only, not on {sys.platform}.")
    compiler = os.environ.get("CXX", "g++").split()
    if shutil.which(compiler[0]) is None:
        fail(
            f"building needs a C++17 compiler and found no `{compiler[0]}`; install one "
            "(Debian: `apt-get install g++`) or name yours in the environment variable CXX."
        )
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        fail("building needs the headers of Python (Debian: `apt-get install python3-dev`).")
    return compiler


def find_tool(name: str) -> str:
    # Beside the interpreter first: a virtual environment need not be on the PATH.
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=places)
    if found is None:
        fail(f"building needs {name}; run `pip install {name}` and build again.")
    return found


def include_directories() -> list[str]:
    try:
        import pybind11
    except ImportError:
        fail("building needs pybind11; run `pip install pybind11` and build again.")
    spec = importlib.util.find_spec("nlohmann_json")
    if spec is None or not spec.submodule_search_locations:
        fail("building needs nlohmann-json; run `pip install nlohmann-json` and build again.")
    nlohmann_json = Path(spec.submodule_search_locations[0], "include")
    return [pybind11.get_include(), str(nlohmann_json)]


def toolchain_versions(compiler: list[str]) -> str:
    output = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True)
    packages = [f"{name} {importlib.metadata.version(name)}" for name in HEADER_PACKAGES]
    return ", ".join([output.stdout.splitlines()[0], *packages])


def pythons() -> list[str]:
    """SUFFIX=DIRECTORY of the Pythons to build for: by default the running one."""
    named = os.environ.get("HPLACER_PYTHONS", "")
    return named.split(os.pathsep) if named else [f"{SUFFIX}={sysconfig.get_path('include')}"]


def configure(*, engine: bool = False) -> None:
    """Configures the build directory; anew where compiler, headers or settings changed.

    The engine alone is built under what is configured, with TensorFlow or without.
    """
    compiler = find_compiler()
    flags = [*compiler[1:], *os.environ.get("CXXFLAGS", "").split()]
    found = [] if engine else TensorFlow.all()
    tensorflows = [f"{release.version}={release.directory}" for release in found]
    command = [find_tool("cmake"), "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja"]
    command += [
        f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}",
        f"-DCMAKE_CXX_COMPILER={compiler[0]}",
        f"-DCMAKE_CXX_FLAGS={' '.join(flags)}",
        f"-DHPLACER_INCLUDES={';'.join(include_directories())}",
        f"-DHPLACER_PYTHONS={';'.join(pythons())}",
        f"-DHPLACER_WERROR={'ON' if os.environ.get('HPLACER_WERROR') == '1' else 'OFF'}",
        f"-DHPLACER_TENSORFLOWS={';'.join(tensorflows)}",
    ]
    recipe = [toolchain_versions(compiler), *command]
    record = BUILD / "configured.txt"
    before = record.read_text().splitlines() if record.exists() else []
    if before[:-1] != recipe[:-1]:
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
    elif engine or before == recipe:
        return
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"this command failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    record.write_text("\n".join(recipe))


def build(targets: list[str], jobs: int | None = None) -> None:
    """Lets CMake build modules of the configured directory, named as their files without .so."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0))
    jobs = jobs or max(1, min(cores, int(memory_bytes / BYTES_PER_JOB)))
    command = [find_tool("cmake"), "--build", str(BUILD), "--parallel", str(jobs)]
    command += ["--target", *targets]
    # A build with nothing to do says nothing.
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] "}
    if subprocess.run(command, check=False, env=environment).returncode != 0:
        fail(f"this command failed: {' '.join(command)}")


class BuildModules(Command):
    """Leaves modules in the build directory, named as their files without .so."""

    user_options: ClassVar = [("targets=", None, "what to build, with commas between")]

    def initialize_options(self) -> None:
        self.targets = ""

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        configure()
        build(self.targets.split(","))


class BuildNative(build_ext):
    """Lets CMake build the modules, and copies them into place."""

    user_options: ClassVar[list[tuple[str, str | None, str]]] = [
        *build_ext.user_options,
        ("engine", None, "build what needs no TensorFlow"),
    ]
    boolean_options: ClassVar[list[str]] = [*build_ext.boolean_options, "engine"]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.engine = False

    def build_extensions(self) -> None:
        built = Path(os.environ.get("HPLACER_MODULES", BUILD))
        names = [extension.name for extension in self.extensions]
        files = {name: name.split(".")[-1] + SUFFIX for name in names}
        if "HPLACER_MODULES" not in os.environ:
            configure(engine=self.engine)
            build([file.removesuffix(".so") for file in files.values()], self.parallel)
        for name, file in files.items():
            target = Path(self.get_ext_fullpath(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(built / file), str(target))


def repository() -> str:
    return os.environ.get("HPLACER_REPOSITORY", "").rstrip("/")


def readme() -> str:
    """README.md for a package index, where a relative link leads nowhere.

    Links become links to the repository, or their bare text where its address is not given.
    """
    base = repository()

    def absolute(link: re.Match[str]) -> str:
        is_picture, text, target = link.groups()
        if not base:
            return "" if is_picture else text
        raw = "?raw=true" if is_picture else ""
        return f"{is_picture}[{text}]({base}/{target}{raw})"

    return re.sub(
        r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]*)\)", absolute, (ROOT / "README.md").read_text()
    )


def native_modules() -> list[Extension]:
    names = ["_engine"]
    if built := os.environ.get("HPLACER_MODULES"):
        names = [file.name.removesuffix(SUFFIX) for file in sorted(Path(built).glob(f"*{SUFFIX}"))]
        if not names:
            fail(f"HPLACER_MODULES: {built} holds no modules whose names end with {SUFFIX}.")
    elif {"build_ext", "bdist_wheel", "editable_wheel"} & {
        *sys.argv
    } and "--engine" not in sys.argv:
        names += [name for found in TensorFlow.all() for name in found.modules]
    return [Extension(f"hplacer_optimizer.{name}", []) for name in names]


if int(setuptools.__version__.split(".")[0]) < 77:
    fail(f"building needs setuptools 77 or newer, not {setuptools.__version__}; upgrade it.")
setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={"Source": repository()} if repository() else {},
    ext_modules=native_modules(),
    cmdclass={"build_ext": BuildNative, "build_modules": BuildModules},
)
