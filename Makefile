# Each target sets itself up: all it needs is Python 3.11 or later.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PY := $(VENV)/bin/python
STAMP := $(VENV)/.ready
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-slow check format

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(STAMP)
	@$(PY) -m amsip demo --output demo

test: $(STAMP)
	@$(PY) -m pytest -q -n 2 -m "not slow"

test-slow: $(STAMP)
	@$(PY) -m pytest -q -n 2 -m slow

check: $(STAMP)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: $(STAMP)
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
