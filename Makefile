# Everything runs in the virtual environment .venv; outputs lie under build/ and beside the package.

PYTHON ?= python3.11
BAZEL ?= bazel
CLANG_FORMAT = .venv/bin/clang-format
SHELL = /bin/bash
.SHELLFLAGS = -euo pipefail -c
JOBS := $(shell nproc)
SEED ?= $(shell date +%Y%m%d)
# A file's tests run in one process, which makes the fixtures of the file once.
PYTEST = .venv/bin/python -m pytest -n $(JOBS) --dist loadfile --randomly-seed $(SEED)

export HPLACER_WERROR = 1

CC_FILES := $(sort $(shell find cc python tests/cc -name '*.cc' -o -name '*.h'))
ENGINE_SOURCES := $(sort $(shell find cc/engine -name '*.cc'))

##@ Use
.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { print "\n" substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: preflight .venv/.locked ## Make .venv with the locked packages, build the native modules
	@.venv/bin/python setup.py --quiet build_ext --inplace
	@$(MAKE) --no-print-directory .venv/.installed

.PHONY: demo
demo: build ## Build, then run `hplacer demo`
	@mkdir -p build
	@.venv/bin/hplacer demo -o build/demo.html

##@ Check
.PHONY: test
test: build lint cc-test-if-possible py-test ## Lint, type check, C++ tests, fast Python tests

.PHONY: test-all
test-all: build lint cc-test cc-test-sanitize tsan ## The same with sanitizers and slow tests
	@$(PYTEST) -m ''

.PHONY: py-test
py-test: build ## The fast Python tests, in an order that SEED decides; the ten slowest are listed
	@$(PYTEST) --durations 10 --durations-min 1

# SLOW_PART of SLOW_PARTS, counted from 0, is by default another one every day.
SLOW_PARTS = 4
SLOW_PART ?= $(shell echo $$(($$(date +%s) / 86400 % $(SLOW_PARTS))))
.PHONY: slow-share
slow-share: build ## A part of the slow Python tests, for a quarter of an hour at most
	@echo "slow tests: part $(SLOW_PART) of $(SLOW_PARTS)"
	@$(PYTEST) --slow-share $(SLOW_PART)/$(SLOW_PARTS) --slow-limit-s 900 -rs --durations 0 --durations-min 1

.PHONY: lint
lint: .venv/.locked ## Check format, style and types
	@.venv/bin/ruff check --quiet
	@.venv/bin/ruff format --check --quiet
	@$(CLANG_FORMAT) --dry-run -Werror $(CC_FILES)
	@.venv/bin/mypy

.PHONY: format
format: .venv/.locked ## Format all sources in place
	@.venv/bin/ruff check --quiet --fix-only
	@.venv/bin/ruff format
	@$(CLANG_FORMAT) -i $(CC_FILES)

.PHONY: cc-test
cc-test: preflight doctest ## C++ unit tests of cc/engine, and of what in cc/tf needs no TensorFlow
	@$(MAKE) --no-print-directory -sj$(JOBS) build/cc/test
	@build/cc/test

.PHONY: cc-test-sanitize
cc-test-sanitize: preflight doctest ## The same under the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory -sj$(JOBS) build/cc-sanitize/test
	@build/cc-sanitize/test

# Under random addresses the sanitizer does not find its place on kernels that use many bits for them.
NO_RANDOM_ADDRESSES = $(shell setarch --addr-no-randomize true 2> /dev/null && echo setarch -R)
.PHONY: tsan
tsan: preflight doctest ## The same under the thread sanitizer
	@$(MAKE) --no-print-directory -sj$(JOBS) build/cc-tsan/test
	@$(NO_RANDOM_ADDRESSES) build/cc-tsan/test

.PHONY: coverage
coverage: build doctest ## Tell which part of the lines and branches the fast tests run
	@.venv/bin/python -m tests.measure_coverage

# FUZZ = --seed 1 --count 1000 and so on: see `.venv/bin/python -m tests.fuzz --help`.
.PHONY: fuzz
fuzz: build ## Load 100,000 mutated problem, machine and plan files under the sanitizers
	@$(MAKE) --no-print-directory -sj$(JOBS) $(SANITIZED_ENGINE)
	@LD_PRELOAD="$(foreach lib,asan ubsan stdc++,$(shell $(CXX) -print-file-name=lib$(lib).so))" \
	  ASAN_OPTIONS=detect_leaks=0:hard_rss_limit_mb=4096 UBSAN_OPTIONS=print_stacktrace=1 \
	  .venv/bin/python -m tests.fuzz --engine $(SANITIZED_ENGINE) $(FUZZ)

##@ Maintain
.PHONY: bazel
bazel: ## Build the native modules with Bazel
	@command -v $(BAZEL) > /dev/null && [[ -d /usr/share/bazel/rules/java ]] || { echo "hplacer: no \
	\`$(BAZEL)\` found (Debian: \`apt-get install bazel-bootstrap bazel-rules-java\`)." >&2; exit 1; }
	@$(MAKE) --no-print-directory build
	$(BAZEL) build //:native

# One resolver run answers with exact versions of everything that the extras need. tf_keras makes it
# list tensorflow, which is left out because tensorflow-cpu holds the same files.
.PHONY: lock
lock: .venv/.locked ## Resolve requirements.lock anew
	@mkdir -p build
	@.venv/bin/python -m pip install --quiet --dry-run --ignore-installed --report build/lock.json \
	  '.[cpu,bench,demo,dev,docs,exact,planners,ray,train]'
	@.venv/bin/python tools/write_lock.py build/lock.json requirements.lock

# Strict: a page outside of the menu, a broken link and a missing anchor are errors.
.PHONY: docs
docs: build ## Build the documentation into build/site, check its links and how it reads
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

.venv/.locked: requirements.lock | preflight
	@[[ -x .venv/bin/python ]] || $(PYTHON) -m venv .venv
	@echo "installing the packages of requirements.lock"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

.venv/.installed: pyproject.toml setup.py .venv/.locked
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation --editable .
	@touch $@

.PHONY: doctest
doctest:
	@tests/cc/fetch_doctest.sh

.PHONY: cc-test-if-possible
cc-test-if-possible:
	@if tests/cc/fetch_doctest.sh; then $(MAKE) --no-print-directory cc-test; \
	  else echo "hplacer: the C++ unit tests were skipped." >&2; fi

# Those of cc/tf that have a test here need no TensorFlow.
CC_TEST_SOURCES := $(ENGINE_SOURCES) $(sort $(shell find tests/cc -name '*.cc')) \
  $(wildcard $(patsubst tests/%_test.cc,%.cc,$(wildcard tests/cc/tf/*_test.cc)))
CC_TEST_FLAGS = -std=c++17 -g -Wall -Wextra -Werror -Icc -Itests/cc \
  -isystem build/doctest/include -MMD -MP -pthread
build/cc/%: CC_TEST_FLAGS += -O1
build/cc-sanitize/%: CC_TEST_FLAGS += -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
build/cc-tsan/%: CC_TEST_FLAGS += -O1 -fsanitize=thread

define CC_TEST_RULES
build/$(1)/test: $$(CC_TEST_SOURCES:%.cc=build/$(1)/%.o)
	@$$(CXX) $$(CC_TEST_FLAGS) $$^ -o $$@
build/$(1)/%.o: %.cc Makefile
	@mkdir -p $$(@D)
	@echo "compiling $$@"
	@$$(CXX) $$(CC_TEST_FLAGS) -c $$< -o $$@
-include $$(CC_TEST_SOURCES:%.cc=build/$(1)/%.d)
endef
$(eval $(call CC_TEST_RULES,cc))
$(eval $(call CC_TEST_RULES,cc-sanitize))
$(eval $(call CC_TEST_RULES,cc-tsan))

# The engine's module under sanitizers. Not beside the package, where it would be loaded always.
SANITIZED_ENGINE = build/sanitize/_engine.so
SANITIZED_SOURCES := $(ENGINE_SOURCES) $(wildcard python/engine_*.cc)
SANITIZE_FLAGS = -std=c++17 -g -O1 -fPIC -fvisibility=hidden -D_GLIBCXX_ASSERTIONS -Icc -MMD -MP \
  -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer \
  $(shell .venv/bin/python -m pybind11 --includes) \
  -isystem $(shell .venv/bin/python -c 'import nlohmann_json; print(*nlohmann_json.__path__)')/include

$(SANITIZED_ENGINE): $(SANITIZED_SOURCES:%.cc=build/sanitize/%.o)
	@$(CXX) $(SANITIZE_FLAGS) -shared $^ -o $@
build/sanitize/%.o: %.cc Makefile
	@mkdir -p $(@D)
	@echo "compiling $@"
	@$(CXX) $(SANITIZE_FLAGS) -c $< -o $@
-include $(SANITIZED_SOURCES:%.cc=build/sanitize/%.d)
