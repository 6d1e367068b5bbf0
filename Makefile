# `make demo` and `make test` need a Python >= 3.12 with pip, and nothing else. The demo installs what
# users install; everything else adds what developers need.
# Settings: PYTHON (interpreter to build .venv with), WORKERS (test processes), TESTS (files of
# tests/, instead of all), PM_EVIDENCE_DATA (folder of real data; ../shared/data is taken when it is
# there).

SHELL := /bin/bash
.DEFAULT_GOAL := help

BIN := .venv/bin
DEMO := .venv/demo
STAMP := .venv/installed
WORKERS ?= 2
TESTS ?=

ifndef PM_EVIDENCE_DATA
  ifneq ($(wildcard ../shared/data/.),)
    PM_EVIDENCE_DATA := $(abspath ../shared/data)
  endif
endif
ifdef PM_EVIDENCE_DATA
  export PM_EVIDENCE_DATA
endif

# Compiled modules are kept, which the environments of some machines forbid: without them each process
# of the tests compiles PyMC and all tests again, for 40 seconds.
export PYTHONDONTWRITEBYTECODE :=

# Each test process has one core, so BLAS must not start threads of its own.
ONE_CORE := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE_CORE) MPLBACKEND=Agg $(BIN)/python -m pytest
# With the instructions that all processors have, the fast tests see the same numbers everywhere.
SAME_NUMBERS = env $$($(BIN)/python tests/processor.py)
# loadfile keeps the tests of a file, which share its compiled models, in one process.
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help demo test test-slow test-docs test-processors golden lint docs notebooks papers package bench clean

help:
	@echo "make demo       run the examples"
	@echo "make test       run the fast tests, or those of TESTS=FILE"
	@echo "make test-slow  run the slow tests, or a part of them: PART=$(subst $() ,|,$(PARTS))"
	@echo "make test-docs  run the pages, the notebooks, the examples, and those of docstrings"
	@echo "make test-processors  run tests of numbers as other processors would"
	@echo "make golden     compare the golden numbers with those stored, or of BASE=COMMIT; WRITE=1 stores them"
	@echo "make lint       check style, types and layers"
	@echo "make docs       build the documentation into docs/_build/html"
	@echo "make notebooks  run the notebooks of examples/ and store their outputs"
	@echo "make papers     make the figures and tables of the papers, or ONLY=NAME"
	@echo "make package    build wheel and sdist, install each, and run a model with it"
	@echo "make bench      run the benchmarks"
	@echo "make clean      remove .venv, builds and caches"

demo: $(DEMO)
	$(BIN)/python examples/eight_schools.py
ifdef PM_EVIDENCE_DATA
	$(BIN)/python examples/radiata_pine.py
else
	@echo "radiata_pine.py is left out: set PM_EVIDENCE_DATA to the folder of real data to run it."
endif

test: $(STAMP)
	$(SAME_NUMBERS) $(PYTEST) $(PARALLEL) $(TESTS)

# Slow tests are statistical. A part takes at most 30 minutes on two cores.
PARTS := coverage routes plates priors bridge tempering runs models samplers families rest
PART_coverage := tests/test_coverage.py
PART_routes := tests/test_coverage_routes.py
PART_plates := tests/test_coverage_plates.py
PART_priors := tests/test_coverage_priors.py
PART_bridge := tests/test_coverage_bridge.py tests/test_coverage_pairs.py
PART_tempering := tests/test_coverage_tempering.py
PART_runs := tests/runs
PART_models := tests/targets
PART_samplers := tests/samplers tests/estimators tests/references tests/kernels
PART_families := tests/families tests/testing
PART_rest := tests $(foreach part,$(filter-out rest,$(PARTS)),$(addprefix --ignore=,$(PART_$(part))))

test-slow: $(STAMP)
	$(if $(PART),$(if $(PART_$(PART)),,$(error PART must be one of $(PARTS), got $(PART))))
	$(PYTEST) $(PARALLEL) -m "slow and not docs" $(if $(PART),$(PART_$(PART)),$(TESTS))

# QUICK=1 leaves out what takes long.
test-docs: $(STAMP)
	$(SAME_NUMBERS) $(PYTEST) $(PARALLEL) -m "docs$(if $(QUICK), and not slow)" $(TESTS)

# Before a release: numbers may differ in the last digits between processors, outcomes may not. Each
# processor has a folder of its own for compiled code; one that this machine lacks cannot be run.
PROCESSORS ?= haswell skylake-avx512
PROCESSOR_TESTS ?= tests/core tests/estimators tests/kernels tests/families

test-processors: $(STAMP)
	@set -e; for name in $(PROCESSORS); do echo "$$name"; \
	  env $$($(BIN)/python tests/processor.py $$name) NUMBA_CACHE_DIR=.numba_cache/$$name \
	    $(PYTEST) $(PARALLEL) $(PROCESSOR_TESTS); done

golden: $(STAMP)
	$(BIN)/python -m tests.golden.compute $(if $(WRITE),--write) $(if $(BASE),--base $(BASE))

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

# Nothing is executed: outputs and pictures are stored in the pages and notebooks.
docs: $(STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "The site is in docs/_build/html/index.html."

notebooks: $(STAMP)
	$(BIN)/python examples/run_notebooks.py

# Runs are kept in examples/papers/results, and an interrupted call goes on from them.
papers: $(STAMP)
	$(BIN)/python -m examples.papers.stored make examples/papers/results $(if $(ONLY),--only $(ONLY))

package: $(STAMP)
	rm -rf dist
	$(BIN)/hatchling build
	$(BIN)/python .ci/try_package.py dist

bench: $(STAMP)
	@for script in $(filter-out benchmarks/common.py,$(wildcard benchmarks/*.py)); do echo "$$script"; $(BIN)/python "$$script" || exit 1; done

# What users install; a changed pyproject.toml installs anew. Modules are compiled when they are first
# imported, because most never are. Every interpreter of each name on PATH is tried, because the
# first may be a shim that does not start, or one without venv.
$(DEMO): pyproject.toml
	@set -euo pipefail; found=; \
	for name in $(PYTHON) python3.12 python3.13 python3.14 python3 python; do \
	  while read -r candidate; do \
	    if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))' \
	        </dev/null >/dev/null 2>&1; then found=$$candidate; break 2; fi; \
	  done < <(type -aP "$$name" || true); \
	done; \
	if [ -z "$$found" ]; then \
	  echo "pm_evidence needs Python >= 3.12 with venv and pip, and none is on PATH:" \
	    "install one, or name it with 'make PYTHON=/path/to/python3.12'." >&2; exit 1; \
	fi; \
	echo "Installing pm_evidence with PyMC, ArviZ and matplotlib into .venv: about 560 MB and two minutes."; \
	echo "Making .venv with $$("$$found" --version) ($$found)"; \
	"$$found" -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --no-compile -e '.[plots]'
	@touch $@

# Beside it, what tests, checks and pages need.
$(STAMP): $(DEMO)
	@echo "Installing what developers need (JAX, Bambi, Sphinx, mypy, ...) into .venv: about 1 GB more and five minutes."
	$(BIN)/python -m pip install --quiet -e '.[test]'
	@touch $@

clean:
	rm -rf .hypothesis .numba_cache .venv build dist
	rm -rf docs/_build docs/generated docs/notebooks
	rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
