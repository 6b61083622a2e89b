# The two commands that matter: `make demo` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
TORCH := torch==2.13.0
DIST := .venv-dist
# Tests run in parallel on as many cores as there are.
JOBS ?= auto

.PHONY: demo test coverage fuzz soak audit check lowest python-versions docs dist release-check parity bench bench-quick bench-tabular bench-ratios clean

$(VENV)/core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable ".[plot]"
	touch $@

# Everything that `make test`, `make check` and `make docs` use. Torch is pinned to a release whose CPU build suffices. A
# browser cannot be had from a Python package: it is installed where that is possible, and its tests say so where not.
$(VENV)/all: pyproject.toml $(VENV)/core
	$(PIP) install $(TORCH)
	$(PIP) install --editable ".[plot,parquet,test,dev,docs]"
	command -v chromium >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null; } \
	  || echo "no chromium here: the browser tests of the report will be skipped"
	touch $@

demo: $(VENV)/core  ## calibrate the embedded sample and write a report to out/
	$(BIN)/mixnmatch demo --output out --force

test: $(VENV)/all  ## all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

coverage: $(VENV)/all  ## all tests, and how much of the code they cover: half as long again
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --cov=mixnmatch --cov-report=term:skip-covered

fuzz: $(VENV)/all  ## every public entry and every reader of files under random attack: 100000 cases, new ones each time
	MIXNMATCH_FUZZ=100000 $(BIN)/python -m pytest tests/fuzz -rN

soak: $(VENV)/all  ## a server with 8 threads for MIXNMATCH_SOAK minutes: flat memory, the same answers
	MIXNMATCH_SOAK=$${MIXNMATCH_SOAK:-30} $(BIN)/python -m pytest tests/test_soak.py -s

audit: $(VENV)/all  ## known vulnerabilities of what is installed; asks the vulnerability service
	$(PIP) install pip-audit
	$(BIN)/pip-audit --skip-editable

check: $(VENV)/all  ## style, types, and which layer may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/all  ## the documentation site, warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going docs site

$(DIST)/tools:
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip --disable-pip-version-check --quiet install build twine
	touch $@

dist: $(DIST)/tools  ## sdist and wheel, checked and tried in empty environments
	rm -rf dist
	$(DIST)/bin/python -m build --outdir dist .
	$(DIST)/bin/twine check --strict dist/*
	$(DIST)/bin/python release/check_dist.py dist

release-check:  ## what must be true before a version is tagged
	$(PYTHON) release/check_release.py

lowest:  ## all tests with the lowest versions that pyproject.toml admits
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip --quiet install $(TORCH)
	.venv-lowest/bin/python -m pip --quiet install --constraint constraints-lowest.txt --editable ".[plot,parquet,test]"
	.venv-lowest/bin/python -m pytest -n $(JOBS) --dist worksteal

# Those of these interpreters that are installed. Torch is left out, since its wheels come late for new versions.
PYTHONS ?= python3.12 python3.13 python3.14
python-versions:  ## all tests with other versions of Python, without torch; PYTHONS names the interpreters
	for python in $(PYTHONS); do \
	  command -v $$python >/dev/null || { echo "$$python is not installed: left out"; continue; }; \
	  $$python -m venv .venv-$$python \
	  && .venv-$$python/bin/python -m pip --quiet install --editable ".[plot,parquet,test]" \
	  && .venv-$$python/bin/python -m pytest -n $(JOBS) --dist worksteal --doctest-ignore-import-errors || exit 1; \
	done

parity:  ## what other packages say of the same data, into parity/values.json
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/python -m pip --quiet install $(TORCH)
	.venv-parity/bin/python -m pip --quiet install --requirement parity/requirements.txt
	.venv-parity/bin/python parity/make_values.py

PEERS := .venv-peers
BENCH := PYTHONPATH=benchmarks $(PEERS)/bin/python -m peers
TABULAR := PYTHONPATH=benchmarks $(PEERS)/bin/python -m tabular

$(PEERS)/peers.json: benchmarks/peers/environment.py
	$(PYTHON) benchmarks/peers/environment.py $(PEERS)

bench: $(PEERS)/peers.json  ## speed, memory and quality beside the peers, and the pages; BENCH_FLAGS choose a part
	$(BENCH) $(BENCH_FLAGS)
	$(if $(BENCH_FLAGS),,$(TABULAR))

bench-tabular: $(PEERS)/peers.json  ## small tabular problems beside the peers, and the page; TABULAR_FLAGS choose a part
	$(TABULAR) $(TABULAR_FLAGS)

bench-quick: $(PEERS)/peers.json  ## the same in about ten minutes, into out/bench
	$(BENCH) --quick $(BENCH_FLAGS)

bench-ratios: $(PEERS)/peers.json  ## the ratios on docs/results/speed.md
	$(PEERS)/bin/python benchmarks/maps_speed.py
	$(PEERS)/bin/python benchmarks/estimators.py

clean:
	rm -rf .venv .venv-dist .venv-lowest .venv-python3.* .venv-parity .venv-peers .bench out build dist
