"""Builds the native modules: `python/X_*.cc` and `cc/X/**/*.cc` become `hplacer_optimizer._X`.

`_engine` is plain C++17. `_tf` is compiled against the TensorFlow that is installed in the building
environment, whose version is compiled in. Only what changed is compiled again: next to each output
in build/native/ lies the command line that made it, and next to each object the list of our headers
that it includes. Foreign headers count through the versions in the command line and in
`toolchain_versions`.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import NoReturn

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
OBJECTS = Path("build/native") / str(sysconfig.get_config_var("SOABI"))

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
HEADER_PACKAGES = ("pybind11", "nlohmann-json")
# A TensorFlow source file takes about 1 GB to compile.
BYTES_PER_JOB = 1.5 * 2**30


def fail(message: str) -> NoReturn:
    # Not an exception: pip and setuptools would bury the sentence under two tracebacks.
    sys.exit(f"hplacer-optimizer: {message}")


@dataclass(frozen=True)
class TensorFlow:
    """The installed TensorFlow, found without importing it, which would take seconds."""

    directory: Path
    version: str

    @staticmethod
    def find() -> TensorFlow:
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
                "'setuptools>=77' pybind11 nlohmann-json 'tensorflow>=2.16,<2.22'` and then `pip "
                "install --no-build-isolation '.[tf]'` (without --no-build-isolation pip hides "
                "the installed TensorFlow)."
            )
        if len(versions) > 1:
            fail(
                "several TensorFlow packages of different versions are installed in one place "
                f"({', '.join(sorted(versions))}); uninstall all of them and install one."
            )
        version = versions.pop()
        release = tuple(int(part) for part in version.split(".")[:2])
        if not TF_OLDEST <= release <= TF_NEWEST:
            fail(
                f"TensorFlow {version} is installed, but the native module supports "
                f"{'.'.join(map(str, TF_OLDEST))} to {'.'.join(map(str, TF_NEWEST))}."
            )
        return TensorFlow(Path(spec.origin).parent, version)

    @property
    def version_string(self) -> str:
        """As TF_Version() spells it: 2.21.0-rc1, where the package says 2.21.0rc1."""
        return re.sub(r"(\d)(rc|dev)", r"\1-\2", self.version)

    @property
    def compile_flags(self) -> list[str]:
        include = self.directory / "include"
        return [
            "-D_GLIBCXX_USE_CXX11_ABI=1",
            "-DEIGEN_MAX_ALIGN_BYTES=64",
            f'-DHPLACER_TF_VERSION="{self.version_string}"',
            "-isystem",
            str(include),
            "-isystem",
            str(include / "external/farmhash_archive/src"),
            # Default visibility, because TensorFlow compares addresses of inline variables across
            # libraries; pybind11's own namespace is hidden, which GCC remarks on.
            "-Wno-attributes",
        ]

    @property
    def link_flags(self) -> list[str]:
        return [
            f"-L{self.directory}",
            "-l:libtensorflow_cc.so.2",
            "-l:libtensorflow_framework.so.2",
            "-Wl,-rpath,$ORIGIN/../tensorflow",
            f"-Wl,-rpath,{self.directory}",
        ]


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


def pybind11_include() -> str:
    try:
        import pybind11
    except ImportError:
        fail("building needs pybind11; run `pip install pybind11` and build again.")
    return str(pybind11.get_include())


def nlohmann_json_include() -> str:
    spec = importlib.util.find_spec("nlohmann_json")
    if spec is None or not spec.submodule_search_locations:
        fail("building needs nlohmann-json; run `pip install nlohmann-json` and build again.")
    return str(Path(spec.submodule_search_locations[0], "include"))


def toolchain_versions(compiler: list[str]) -> str:
    output = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True)
    packages = [f"{name} {importlib.metadata.version(name)}" for name in HEADER_PACKAGES]
    return ", ".join([output.stdout.splitlines()[0], *packages])


@dataclass(frozen=True)
class Step:
    """One command that makes one file, and how to tell that it must run again."""

    output: Path
    inputs: list[Path]
    command: list[str]
    versions: str

    def run_if_stale(self) -> None:
        record = self.output.with_name(self.output.name + ".cmd")
        recipe = "\n".join([self.versions, *self.command])
        if record.exists() and record.read_text() == recipe and self._is_newer_than_inputs():
            return
        verb = "linking" if self.output.suffix == ".so" else "compiling"
        print(f"{verb} {self.output}", flush=True)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        record.unlink(missing_ok=True)
        if subprocess.run(self.command, check=False).returncode != 0:
            fail(f"this command failed: {' '.join(self.command)}")
        record.write_text(recipe)

    def _is_newer_than_inputs(self) -> bool:
        try:
            made = self.output.stat().st_mtime_ns
            return all(path.stat().st_mtime_ns < made for path in [*self.inputs, *self._headers()])
        except FileNotFoundError:
            return False

    def _headers(self) -> list[Path]:
        if self.output.suffix != ".o":
            return []
        rule = self.output.with_suffix(".d").read_text().replace("\\\n", "")
        return [Path(name) for name in rule.partition(":")[2].split()]


class BuildNative(build_ext):
    """Compiles the files of all modules side by side, links each module, copies it into place."""

    def build_extensions(self) -> None:
        os.chdir(ROOT)
        compiler = find_compiler()
        tensorflow = TensorFlow.find()
        flags = ["-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-Wall", "-Wextra", "-Icc"]
        flags += ["-isystem", sysconfig.get_path("include"), "-isystem", pybind11_include()]
        flags += ["-isystem", nlohmann_json_include()]
        versions = toolchain_versions(compiler)
        if os.environ.get("HPLACER_WERROR") == "1":
            flags.append("-Werror")
        flags += os.environ.get("CXXFLAGS", "").split()

        compiles: list[Step] = []
        links: list[Step] = []
        for extension in self.extensions:
            uses_tensorflow = extension.name.endswith("._tf")
            module_flags = tensorflow.compile_flags if uses_tensorflow else ["-fvisibility=hidden"]
            objects = []
            for source in extension.sources:
                output = OBJECTS / Path(source).with_suffix(".o")
                command = [*compiler, *flags, *module_flags, "-MMD", "-c", source]
                command += ["-o", str(output)]
                compiles.append(Step(output, [Path(source)], command, versions))
                objects.append(output)
            output = OBJECTS / self.get_ext_filename(extension.name)
            command = [*compiler, "-shared", *map(str, objects), "-o", str(output)]
            command += tensorflow.link_flags if uses_tensorflow else []
            links.append(Step(output, objects, command, versions))

        with ThreadPoolExecutor(self._jobs()) as pool:
            for _ in pool.map(Step.run_if_stale, compiles):
                pass
        for extension, link in zip(self.extensions, links, strict=True):
            link.run_if_stale()
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(link.output), str(target))

    def _jobs(self) -> int:
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        cores = len(os.sched_getaffinity(0))
        return self.parallel or max(1, min(cores, int(memory_bytes / BYTES_PER_JOB)))


def native_modules() -> list[Extension]:
    modules = []
    for binding in sorted(glob("python/*_module.cc")):
        part = Path(binding).name.removesuffix("_module.cc")
        sources = sorted(glob(f"python/{part}_*.cc") + glob(f"cc/{part}/**/*.cc", recursive=True))
        headers = sorted(glob(f"python/{part}_*.h") + glob(f"cc/{part}/**/*.h", recursive=True))
        modules.append(Extension(f"hplacer_optimizer._{part}", sources, depends=headers))
    return modules


if int(setuptools.__version__.split(".")[0]) < 77:
    fail(f"building needs setuptools 77 or newer, not {setuptools.__version__}; upgrade it.")
setup(ext_modules=native_modules(), cmdclass={"build_ext": BuildNative})
