# Needs Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One more than two cores: tests that start processes mostly wait for them.
WORKERS ?= 3
ARGS ?=
MINUTES ?= 30
SLICE ?= 1/20
RATE ?= 200

# Tests start many processes: without compiled modules each takes a second longer.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo simulate test test-all-pythons verify mutants soak audit lint format bench bench-all bench-startup bench-engine chart profile lock clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Installed again only when the lock, or what the package declares, has changed.
$(VENV)/.locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

venv: $(VENV)/.installed ## Install into .venv

demo: venv ## Start an embedded cluster and the scheduler, place the example workloads
	$(BIN)/koordsched demo $(ARGS)

simulate: venv ## Place the example workloads offline; SEEDS=1000: run that many clusters under faults
ifdef SEEDS
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --jobs $(WORKERS) $(ARGS)
else
	$(BIN)/koordsched simulate -f config/examples/workloads --nodes 100 \
		--node-template config/examples/node-templates/demo.yaml $(ARGS) || [ $$? -eq 3 ]
endif

test: venv ## The tests, without the slow ones
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-all-pythons: venv ## A part of the tests on every Python from 3.11 to 3.14 that there is
	WORKERS=$(WORKERS) $(BIN)/python tools/pythons.py

verify: venv ## All tests
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

mutants: venv ## Small defects in what decides, and whether tests find them; SLICE=1/20: the first twentieth
	nice $(BIN)/python -m tests.mutants --slice $(SLICE) $(ARGS)

soak: venv ## Real processes under load and churn, judged; MINUTES=30, RATE=200 pods per second
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --rate $(RATE) $(ARGS)

lint: venv ## Linters and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

audit: venv ## Look for known vulnerabilities in what is locked
	$(BIN)/python tools/audit.py

format: venv ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv ## Measure on the embedded cluster, next to the yardstick, and the engine alone
	$(BIN)/python -m bench $(ARGS)
	$(BIN)/python -m bench.engine --quick

bench-all: venv ## Measure every workload at full size, and print the table for docs/performance.md
	$(BIN)/python -m bench --workload all --ceiling-only --emulate-apiserver --out bench/out/all $(ARGS); status=$$?; \
		cat bench/out/all/table.md; exit $$status

bench-startup: venv ## Measure a start among 5,000 nodes and 150,000 pods, next to listing and decoding alone
	$(BIN)/python -m bench.startup $(ARGS)

chart: venv ## Measure and draw the chart of the README anew
	$(BIN)/python -m bench --workload SchedulingBasic --emulate-apiserver --out bench/out/chart $(ARGS)
	cp bench/out/chart/SchedulingBasic.svg docs/images/scheduling-basic.svg

bench-engine: venv ## Measure the engine alone: all workloads, 1,000 to 100,000 nodes
	$(BIN)/python -m bench.engine $(ARGS)

profile: venv ## Show where the time of one pod goes
	$(BIN)/python -m bench.profiling $(ARGS)

lock: ## Choose the versions in requirements.lock anew
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet pip-tools
	$(VENV)-lock/bin/python tools/lock.py
	rm -rf $(VENV)-lock

clean: ## Remove what make made
	rm -rf $(VENV) $(VENV)-lock $(VENV)-3.* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
