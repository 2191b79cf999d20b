# `make run` and `make test` work from a fresh clone: they make $(VENV), install exactly what the
# lock files pin (versions and hashes), and then do their job. Repeating them installs nothing.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
# How many of the tests marked slow `make test` includes: always the same ones (tests/conftest.py).
SLOW_SAMPLE ?= 6

BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check

# An installation is known by the contents of what it was made from, so a touched file costs nothing.
key = $(shell cat $(1) pyproject.toml | cksum | tr ' ' '-')
RUN_READY := $(VENV)/.ready-run-$(call key,requirements.lock)
DEV_READY := $(VENV)/.ready-dev-$(call key,requirements-dev.lock)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test test-full lint format bench study study-quick docs lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_READY) ## compare the learners on the default problem (advmdp compare)
	@$(BIN)/advmdp compare

test: $(DEV_READY) ## quick tests and a fixed sample of the slow ones
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --slow-sample=$(SLOW_SAMPLE)

test-full: $(DEV_READY) ## every test at one commit; goes on where it was interrupted; writes docs/test-results.md
	@$(BIN)/python -m tests.full docs/test-results.md --jobs $(JOBS)

lint: $(DEV_READY) ## style, format, types and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(DEV_READY) ## rewrite the code in the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(DEV_READY) ## run every benchmark and print its table (one thread)
	@set -e; for name in $(basename $(notdir $(wildcard benchmarks/bench_*.py))); do \
		echo "== $$name"; OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.$$name; \
	done

study: $(DEV_READY) ## every study of docs/study in full (hours; what is there already is not repeated)
	@OMP_NUM_THREADS=1 $(BIN)/python -m studies

study-quick: $(DEV_READY) ## the small variants of the studies, into a temporary directory (minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m studies --small

docs: $(DEV_READY) ## build the documentation into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The development lock is constrained by the run lock, so the two agree wherever they overlap and a
# run environment can become a development one without changing what it runs. One version serves all
# Python versions (--fork-strategy fewest), so a result does not depend on which one was used.
# Pins stay as they are unless they must change; `make lock UPGRADE=--upgrade` takes the newest.
COMPILE = $(BIN)/uv pip compile --quiet --no-config --no-header --generate-hashes --universal \
	--fork-strategy fewest --python-version 3.11 --group build $(UPGRADE) pyproject.toml
lock: $(DEV_READY) ## pin the dependencies of pyproject.toml again
	@$(COMPILE) --output-file requirements.lock
	@$(COMPILE) --extra report --extra ray --extra dev --constraints requirements.lock \
		--output-file requirements-dev.lock

clean: ## remove the environment and everything that was generated
	@rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache .benchmarks .test-results
	@find src tests benchmarks studies examples -type d -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "advmdp needs Python 3.11 or newer; name one with PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)

# $(call install,lock): the pinned dependencies, then this package (editable, so edits need no install).
define install
	@echo "Installing $(1) into $(VENV) (minutes when new, seconds when most is there)"
	@rm -f $(VENV)/.ready-*
	@$(PIP_INSTALL) --require-hashes -r $(1)
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
endef

$(RUN_READY): | $(BIN)/python
	$(call install,requirements.lock)
	@touch $@

# The development lock contains the run lock, so both are ready afterwards.
$(DEV_READY): | $(BIN)/python
	$(call install,requirements-dev.lock)
	@touch $@ $(RUN_READY)
