# Everything runs in the virtual environment .venv; outputs lie under build/ and beside the package.

PYTHON ?= python3.11
BAZEL ?= bazel
CLANG_FORMAT = .venv/bin/clang-format
SHELL = /bin/bash
.SHELLFLAGS = -euo pipefail -c
# Tests wait for their processes now and then: one worker more than processors keeps these busy.
JOBS := $(shell echo $$(($$(nproc) + 1)))
SEED ?= $(shell date +%Y%m%d)
# A file's tests run in one process, which makes the fixtures of the file once.
# A worker that a test has taken down is not replaced: after that pytest-xdist would never end.
PYTEST = .venv/bin/python -m pytest -n $(JOBS) --dist loadfile --max-worker-restart 0 \
  --randomly-seed $(SEED) -rs

export HPLACER_WERROR = 1
# Each process of the tests would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

CC_FILES := $(sort $(shell find cc python tests -name '*.cc' -o -name '*.h'))
# CMakeLists.txt describes the native code; a test's build says nothing but what it compiles.
CMAKE_BUILD = .venv/bin/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/.venv/bin/ninja \
  -DCMAKE_BUILD_TYPE=Debug -DHPLACER_WERROR=ON

##@ Use
.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { print "\n" substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: preflight .venv/.build ## Make .venv with the locked packages, build the native modules
	@$(MAKE) --no-print-directory --jobs 2 engine .venv/.demo
	@.venv/bin/python setup.py --quiet build_ext --inplace
	@$(MAKE) --no-print-directory .venv/.installed

# The demo has real devices: the emulator of GPUs is built with all else.
.PHONY: demo
demo: export HPLACER_WITHOUT_EMULATOR = 1
demo: build ## Build all but the emulator of GPUs, then run `hplacer demo`
	@mkdir -p build
	@.venv/bin/hplacer demo -o build/demo.html

##@ Check
.PHONY: test
test: system-packages ## Lint, type check, C++ tests, fast Python tests
	@$(MAKE) --no-print-directory --jobs 2 engine lint
	@$(MAKE) --no-print-directory build cc-test-if-possible py-test

.PHONY: test-all
test-all: build .venv/.test lint cc-test cc-test-sanitize tsan ## The same with sanitizers and slow tests
	@$(PYTEST) -m ''

# Of the fast Python tests, in seconds of a processor at its usual speed: they take 780 to 1010.
# While neighbours of a shared host make it slower, more is allowed (tests/conftest.py).
PROCESSOR_LIMIT = 1400
.PHONY: py-test
py-test: build .venv/.test ## The fast Python tests, in an order that SEED decides; the ten slowest are listed
	@$(PYTEST) --durations 10 --durations-min 1 --processor-limit $(PROCESSOR_LIMIT)

# SLOW_PART of SLOW_PARTS, counted from 0, is by default another one every day of the week.
SLOW_PARTS = 7
SLOW_PART ?= $(shell echo $$(($$(date +%s) / 86400 % $(SLOW_PARTS))))
.PHONY: slow-share
slow-share: build .venv/.test ## A seventh of the slow Python tests, another one every day
	@echo "slow tests: part $(SLOW_PART) of $(SLOW_PARTS)"
	@$(PYTEST) --slow-share $(SLOW_PART)/$(SLOW_PARTS) --durations 0 --durations-min 1

.PHONY: slow-dates
slow-dates: build .venv/.test ## List the slow Python tests, and which day last was theirs
	@.venv/bin/python -m pytest -q --slow-dates $(SLOW_PARTS)

# Nothing of this may import the package, which `make test` builds at the same time.
.PHONY: lint
lint: .venv/.test ## Check format, style and types
	@.venv/bin/ruff check --quiet
	@.venv/bin/ruff format --check --quiet
	@$(CLANG_FORMAT) --dry-run -Werror $(CC_FILES)
	@.venv/bin/mypy

.PHONY: format
format: .venv/.test ## Format all sources in place
	@.venv/bin/ruff check --quiet --fix-only
	@.venv/bin/ruff format
	@$(CLANG_FORMAT) -i $(CC_FILES)

.PHONY: cc-test
cc-test: build/cc/cc_test ## C++ unit tests of cc/engine, and of what elsewhere needs no TensorFlow
	@$<

.PHONY: cc-test-sanitize
cc-test-sanitize: build/cc-sanitize/cc_test ## The same under the address and undefined-behaviour sanitizers
	@$<

# Under random addresses the sanitizer does not find its place on kernels that use many bits for them.
NO_RANDOM_ADDRESSES = $(shell setarch --addr-no-randomize true 2> /dev/null && echo setarch -R)
.PHONY: tsan
tsan: build/cc-tsan/cc_test ## The same under the thread sanitizer
	@$(NO_RANDOM_ADDRESSES) $<

.PHONY: coverage
coverage: build .venv/.test doctest ## Tell which part of the lines and branches the fast tests run
	@.venv/bin/python -m tests.measure_coverage

# FUZZ = --seed 1 --count 1000 and so on: see `.venv/bin/python -m tests.fuzz --help`.
.PHONY: fuzz
fuzz: build .venv/.test ## Load 100,000 mutated problem files under the sanitizers
	@$(CMAKE_BUILD) -B build/sanitize -DCMAKE_CXX_FLAGS="$(SANITIZE) -D_GLIBCXX_ASSERTIONS" \
	  -DHPLACER_INCLUDES="$$(.venv/bin/python -c '$(PRINT_INCLUDES)')" \
	  -DHPLACER_PYTHONS=".so=$$(.venv/bin/python -c '$(PRINT_PYTHON_INCLUDE)')" > /dev/null
	@.venv/bin/cmake --build build/sanitize --target _engine
	@LD_PRELOAD="$(foreach lib,asan ubsan stdc++,$(shell $(CXX) -print-file-name=lib$(lib).so))" \
	  ASAN_OPTIONS=detect_leaks=0:hard_rss_limit_mb=4096 UBSAN_OPTIONS=print_stacktrace=1 \
	  .venv/bin/python -m tests.fuzz --engine build/sanitize/_engine.so $(FUZZ)

##@ Maintain
.PHONY: wheel
wheel: build .venv/.test ## Build a wheel for each Python, with modules for all TensorFlow releases, into dist/
	@.venv/bin/python tools/build_wheel.py

.PHONY: test-matrix
test-matrix: wheel ## Install the wheels beside each Python and TensorFlow release, and test them there
	@.venv/bin/python tools/test_matrix.py

.PHONY: results
results: build .venv/.test ## List the parts of docs/results: what made them, and which are stale
	@.venv/bin/python tools/results.py

.PHONY: results-simulated
results-simulated: build .venv/.test ## Make stale results anew that any machine can make; may be stopped
	@.venv/bin/python tools/results.py run simulated

.PHONY: results-measured
results-measured: build .venv/.test ## The same for those that time steps: on a quiet machine
	@.venv/bin/python tools/results.py run measured

.PHONY: bazel
bazel: ## Build the native modules with Bazel
	@command -v $(BAZEL) > /dev/null || { echo "hplacer: no \`$(BAZEL)\` found (Debian: \`apt-get \
	install bazel-bootstrap\`)." >&2; exit 1; }
	@$(MAKE) --no-print-directory build
	$(BAZEL) build //:native

# The tool and what it lists have an environment each.
.PHONY: sbom
sbom: wheel ## List what the wheel runs with beside the newest TensorFlow, into dist/sbom.json
	@$(PYTHON) -m venv build/sbom && build/sbom/bin/python -m pip install --quiet cyclonedx-bom
	@$(PYTHON) -m venv build/listed && build/listed/bin/python -m pip install --quiet \
	  dist/hplacer_optimizer-*-$$($(PYTHON) -c '$(PRINT_TAG)')-*.whl tensorflow-cpu==2.21.0
	@build/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  -o dist/sbom.json build/listed/bin/python

# One resolver run answers with exact versions of everything that the extras need. tf_keras makes it
# list tensorflow, which is left out because tensorflow-cpu holds the same files.
.PHONY: lock
lock: .venv/.test ## Resolve the files of requirements/ anew
	@mkdir -p build
	@.venv/bin/python -m pip install --quiet --dry-run --ignore-installed --report build/lock.json \
	  '.[bench,build,cpu,demo,docs,planners,ray,test]'
	@.venv/bin/python tools/write_lock.py build/lock.json requirements

# Strict: a page outside of the menu, a broken link and a missing anchor are errors.
.PHONY: docs
docs: build .venv/.docs ## Build the documentation into build/site, check its links and how it reads
	@.venv/bin/python tools/write_docs.py --check
	@.venv/bin/python tools/readability.py
	@NO_MKDOCS_2_WARNING=1 TF_ENABLE_ONEDNN_OPTS=0 .venv/bin/mkdocs build --strict

.PHONY: clean
clean: ## Remove what was built, .venv included
	rm -rf .venv build dist *.egg-info hplacer_optimizer/*.so .mypy_cache .pytest_cache .ruff_cache

# What the targets above are made of.

.PHONY: preflight
preflight:
	@command -v $(CXX) > /dev/null || { echo "hplacer: no C++ compiler \`$(CXX)\` found; install one \
	(Debian: \`apt-get install g++\`)." >&2; exit 1; }
	@[[ -x .venv/bin/python ]] || $(PYTHON) -c '' 2> /dev/null || { echo "hplacer: no \`$(PYTHON)\` \
	found; install Python 3.11 or name another with \`make PYTHON=...\`." >&2; exit 1; }
	@[[ -x .venv/bin/python ]] || $(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { echo \
	"hplacer: \`$(PYTHON)\` has no venv module (Debian: \`apt-get install python3-venv\`)." >&2; exit 1; }

# It needs no TensorFlow, and is compiled while pip, which uses one core, installs that.
.PHONY: engine
engine: .venv/.build
	@.venv/bin/python setup.py --quiet build_ext --inplace --engine

# What the build needs, what the demo needs besides, and what tests and documentation need besides both.
.venv/.build .venv/.demo .venv/.test .venv/.docs: .venv/.%: requirements/%.lock | preflight
	@[[ -x .venv/bin/python ]] || $(PYTHON) -m venv .venv
	@echo "installing the packages of $<"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@
.venv/.demo: | .venv/.build
.venv/.test .venv/.docs: | .venv/.demo

.venv/.installed: pyproject.toml setup.py .venv/.demo
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation --editable .
	@touch $@

.PHONY: system-packages
system-packages:
	@tools/install_system_packages.sh

.PHONY: doctest
doctest:
	@tests/cc/fetch_doctest.sh

.PHONY: cc-test-if-possible
cc-test-if-possible:
	@if tests/cc/fetch_doctest.sh; then $(MAKE) --no-print-directory cc-test; \
	  else echo "hplacer: the C++ unit tests were skipped." >&2; fi

PRINT_INCLUDES = import nlohmann_json, pybind11; print(pybind11.get_include(), \
  nlohmann_json.__path__[0] + "/include", sep=";")
PRINT_TAG = import sys; print("cp%d%d" % sys.version_info[:2])
PRINT_PYTHON_INCLUDE = import sysconfig; print(sysconfig.get_path("include"))
SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
build/cc-sanitize/cc_test: TEST_FLAGS = $(SANITIZE)
build/cc-tsan/cc_test: TEST_FLAGS = -fsanitize=thread
.PHONY: build/cc/cc_test build/cc-sanitize/cc_test build/cc-tsan/cc_test
build/cc/cc_test build/cc-sanitize/cc_test build/cc-tsan/cc_test: .venv/.demo doctest
	@$(CMAKE_BUILD) -B $(@D) -DCMAKE_CXX_FLAGS="$(TEST_FLAGS)" > /dev/null
	@.venv/bin/cmake --build $(@D) --target cc_test
