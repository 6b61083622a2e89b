# The two commands that matter: `make demo` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test fuzz audit check lowest docs parity bench bench-estimators clean

$(VENV)/core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable ".[fast,plot]"
	touch $@

$(VENV)/all: pyproject.toml $(VENV)/core
	$(PIP) install --editable ".[fast,plot,parquet,test,dev,docs]"
	touch $@

demo: $(VENV)/core  ## calibrate the embedded sample and write a report to out/
	$(BIN)/mixnmatch demo --output out --force

test: $(VENV)/all  ## all tests
	$(BIN)/python -m pytest

fuzz: $(VENV)/all  ## every public entry and every reader of files under random attack: 100000 cases, new ones each time
	MIXNMATCH_FUZZ=100000 $(BIN)/python -m pytest tests/fuzz -rN

audit: $(VENV)/all  ## known vulnerabilities of what is installed; asks the vulnerability service
	$(PIP) install pip-audit
	$(BIN)/pip-audit --skip-editable

check: $(VENV)/all  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/all  ## the documentation site, warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going docs site

lowest:  ## all tests with the lowest versions that pyproject.toml admits
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip --quiet install --constraint constraints-lowest.txt --editable ".[fast,plot,parquet,test]"
	.venv-lowest/bin/python -m pytest

parity:  ## what other packages say of the same data, into parity/values.json
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/python -m pip --quiet install torch==2.13.0
	.venv-parity/bin/python -m pip --quiet install --requirement parity/requirements.txt
	.venv-parity/bin/python parity/make_values.py

bench: $(VENV)/core  ## speed of the maps beside scikit-learn and the authors' way of fitting
	$(BIN)/python benchmarks/maps_speed.py

bench-estimators:  ## speed of the estimators beside KDEpy, torchmetrics and relplot
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip --quiet install torch==2.13.0
	.venv-bench/bin/python -m pip --quiet install --editable ".[fast]" --requirement benchmarks/requirements-estimators.txt
	.venv-bench/bin/python benchmarks/estimators.py

clean:
	rm -rf .venv .venv-lowest .venv-parity .venv-bench out build dist
