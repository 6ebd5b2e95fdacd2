"""A repository of what .venv provides to native code."""

_PATHS = """
import importlib.metadata, importlib.util, pathlib, sysconfig
print(sysconfig.get_path("include"))
for package in "pybind11", "tensorflow":
    print(pathlib.Path(importlib.util.find_spec(package).origin).parent)
print(importlib.metadata.version("tensorflow-cpu"))
print(*importlib.util.find_spec("nlohmann_json").submodule_search_locations)
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "pybind11",
    hdrs = glob(["python/**/*.h", "pybind11/**/*.h"]),
    includes = ["python", "pybind11"],
)

cc_library(
    name = "nlohmann_json",
    hdrs = glob(["nlohmann_json/**/*.hpp"]),
    includes = ["nlohmann_json"],
)

cc_library(
    name = "tensorflow",
    hdrs = glob(["tensorflow/**"]),
    defines = ["EIGEN_MAX_ALIGN_BYTES=64", "_GLIBCXX_USE_CXX11_ABI=1"],
    includes = ["tensorflow", "tensorflow/external/farmhash_archive/src"],
)
"""

_CONSTANTS = """
TF_DIRECTORY = "{directory}"
TF_VERSION = "{version}"
"""

def _venv_impl(ctx):
    python = ctx.path(Label("//:.venv/bin/python"))
    answer = ctx.execute([python, "-c", _PATHS])
    if answer.return_code != 0:
        fail("no TensorFlow, pybind11 and nlohmann-json in .venv; run `make build` first: " + answer.stderr)
    python_include, pybind11, tensorflow, version, nlohmann_json = answer.stdout.splitlines()
    ctx.symlink(python_include, "python")
    ctx.symlink(pybind11 + "/include", "pybind11")
    ctx.symlink(tensorflow + "/include", "tensorflow")
    ctx.symlink(nlohmann_json + "/include", "nlohmann_json")
    ctx.file("BUILD", _BUILD)
    ctx.file("constants.bzl", _CONSTANTS.format(directory = tensorflow, version = version))

venv = repository_rule(implementation = _venv_impl, local = True)
