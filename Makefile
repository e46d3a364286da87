# The short way to everything. Each target installs what it lacks (tools/bootstrap), builds into
# build/ and .venv/, and can be repeated; the work itself is in CMake presets and tools/.

PYTHON := .venv/bin/python
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export CTEST_PARALLEL_LEVEL := $(JOBS)

SOURCES = git ls-files --cached --others --exclude-standard

.DEFAULT_GOAL := all
.PHONY: all release package wheel wheel-check quick demo test test-all test-slow peers test-peers test-ray bench cuda coverage format lint \
        clean help bootstrap-build bootstrap-test bootstrap-bench bootstrap-dev bootstrap-wheel
# Targets share build trees and the package manager; the parallelism is inside them.
.NOTPARALLEL:

all: release package  ## build everything; the program is .venv/bin/octavo
	@echo "built: .venv/bin/octavo, and 'import octavo' in $(PYTHON)"

bootstrap-build:
	@tools/bootstrap build
bootstrap-test:
	@tools/bootstrap test
bootstrap-bench:
	@tools/bootstrap bench
bootstrap-dev:
	@tools/bootstrap dev
bootstrap-wheel:
	@tools/bootstrap wheel

# A newer compiler may warn where ours does not: warnings are errors only in test builds.
WERROR ?= OFF

# Several sources are compiled as one: in half of the time. UNITY=OFF for work on single files.
UNITY ?= ON
unity_folder = $(CURDIR)/build/unity

# Without tests and benchmarks, so that building does not need what only testing needs.
release: bootstrap-build
	cmake --preset release -DOCTAVO_WERROR=$(WERROR) -DOCTAVO_BUILD_TESTS=OFF -DOCTAVO_BUILD_BENCH=OFF \
	  -DOCTAVO_UNITY=$(UNITY) -DOCTAVO_UNITY_FOLDER=$(unity_folder)
	cmake --build --preset release

# The Python package with the program inside, as a user's `pip install .` would install it, except
# that the build tree is kept: a second run compiles only what changed. CXX is the name that CMake
# finds by itself, not the one Python was built with: ccache then knows the objects of `release`.
package: bootstrap-build
	CXX="$${CXX:-c++}" \
	$(PYTHON) -m pip --disable-pip-version-check install --quiet --no-build-isolation --no-deps \
	  --config-settings=build-dir=build/python \
	  --config-settings=cmake.define.OCTAVO_WERROR=$(WERROR) \
	  --config-settings=cmake.define.OCTAVO_UNITY=$(UNITY) \
	  --config-settings=cmake.define.OCTAVO_UNITY_FOLDER=$(unity_folder) \
	  --config-settings=cmake.define.OCTAVO_USE_CCACHE=ON .

wheel: bootstrap-wheel  ## build the wheels that users install, into dist/
	$(PYTHON) tools/wheel

wheel-check: wheel  ## try them where there is nothing but Python (needs root, for chroots)
	$(PYTHON) tools/wheel_check

# Where the package has been built, it is updated and the demo includes Python. Otherwise the program
# alone, in a build that takes half the time.
demo: $(if $(wildcard build/python/CMakeCache.txt),package,quick)  ## quantize a real model and show what that cost; leaves a report and pictures in build/demo
	@tools/demo

quick: bootstrap-build
	cmake --preset quick -DOCTAVO_UNITY=$(UNITY)
	cmake --build --preset quick

test:  ## what a person runs: sources checked, everything users get built and tested
	@tools/bootstrap test --debian
	@$(PYTHON) tools/run_tests.py

test-all:  ## what continuous integration runs: that, sanitizers, emulators, x86_64, CUDA, Ray
	@tools/bootstrap ci --debian
	@$(PYTHON) tools/run_tests.py --all

test-slow: bootstrap-test  ## the exhaustive tests: minutes
	@$(PYTHON) tools/run_tests.py slow

# transformers, llm-compressor, ModelOpt: some gigabytes, in an environment of their own.
PEERS := .venv-peers/bin/python
peers:  ## install the loaders and quantizers that test-peers runs, into .venv-peers
	test -x $(PEERS) || python3 -m venv .venv-peers
	$(PEERS) -m pip --disable-pip-version-check install --quiet -r python/requirements-peers.txt
	$(PEERS) -m pip --disable-pip-version-check install --quiet --no-deps \
	  -r python/requirements-peers-only.txt

test-peers: release peers  ## load octavo's checkpoints with transformers, compare with other tools
	$(PEERS) -m pytest -q tests/peers

test-ray: package  ## octavo.ray on a local cluster of several raylets
	@$(PYTHON) tools/run_tests.py ray

bench: bootstrap-bench package  ## measure; writes bench/results
	cmake --preset release -DOCTAVO_BUILD_BENCH=ON
	cmake --build --preset release
	$(PYTHON) bench/run.py
	$(PYTHON) -m bench.performance

cuda: bootstrap-test  ## everything with the CUDA backend, tests too, in build/cuda (needs nvcc 13)
	cmake --preset cuda -DOCTAVO_WERROR=$(WERROR)
	cmake --build --preset cuda

coverage: bootstrap-dev  ## lines the C++ tests reach, as HTML
	cmake --preset coverage
	cmake --build --preset coverage
	find build/coverage -name '*.gcda' -delete
	ctest --preset coverage
	$(PYTHON) -m gcovr --root . --filter octavo/ --exclude '.*_test\.cc' build/coverage \
	  --txt build/coverage/coverage.txt --html-details build/coverage/coverage.html --print-summary
	@echo "report: build/coverage/coverage.html"

format: bootstrap-test  ## rewrite all sources in the house style
	$(SOURCES) '*.cc' '*.h' '*.cu' '*.cuh' | xargs -r clang-format -i
	$(SOURCES) '*.py' | xargs -r .venv/bin/ruff format --quiet
	$(SOURCES) '*.py' | xargs -r .venv/bin/ruff check --quiet --fix

# Host code of the CUDA backend is looked at where there is a CUDA toolkit; kernels are not.
NVCC := $(firstword $(CUDACXX) $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
TIDY = xargs -r -n 4 -P $(JOBS) clang-tidy --quiet -p

lint: bootstrap-dev  ## the checks of `make test` that compile nothing, and clang-tidy
	$(PYTHON) tools/run_tests.py checks
	cmake --preset release -DOCTAVO_BUILD_TESTS=ON -DOCTAVO_UNITY=OFF
	$(SOURCES) 'octavo/*.cc' 'cli/*.cc' | grep -v -e _test.cc -e /cuda | $(TIDY) build/release
ifneq ($(NVCC),)
	cmake --preset cuda -DCMAKE_CUDA_COMPILER=$(NVCC) -DOCTAVO_BUILD_TESTS=OFF -DOCTAVO_UNITY=OFF
	$(SOURCES) 'octavo/backend/cuda/*.cc' | $(TIDY) build/cuda
else
	@echo "left out: clang-tidy of the CUDA backend, because there is no nvcc"
endif

clean:  ## remove build/; .venv stays (rm -r .venv to remove it too)
	rm -rf build

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24
