# The two commands that matter: `make demo` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test check lowest docs clean

$(VENV)/core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable ".[fast,plot]"
	touch $@

$(VENV)/all: pyproject.toml $(VENV)/core
	$(PIP) install --editable ".[fast,plot,parquet,test,dev]"
	touch $@

demo: $(VENV)/core  ## calibrate the embedded sample and write a report to out/
	$(BIN)/mixnmatch demo --output out --force

test: $(VENV)/all  ## all tests
	$(BIN)/python -m pytest

check: $(VENV)/all  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lowest:  ## all tests with the lowest versions that pyproject.toml admits
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip --quiet install --constraint constraints-lowest.txt --editable ".[fast,plot,parquet,test]"
	.venv-lowest/bin/python -m pytest

clean:
	rm -rf .venv .venv-lowest out build dist
