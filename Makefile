# Two commands do all the set-up: `make run` and `make test`. Both make their own virtual environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
RUN_READY := $(VENV)/run-ready

# most tests wait for processes: three at once for each core
TESTS = .ci/in-memory $(BIN)/pytest -n $$(( $$(nproc) * 3 )) --dist worksteal -m "not evidence" $(PYTEST_ARGS)
# a plain path to this folder: setuptools' own finder takes 7 ms of every start of Python
EDITABLE = --config-settings editable_mode=compat
# how often `make steady` runs them
N ?= 5

# A process that finds no bytecode compiles this program anew, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test steady check style types collection bench evidence clean

run: $(RUN_READY)
	@if [ -f .env ]; then exec $(BIN)/nightshift --env-file .env up; else exec $(BIN)/nightshift demo; fi

test: check
	@.ci/tools gcc chromium slurmctld
	$(TESTS)

# The whole suite N times in a row beside two busy loops: which tests fail by chance?
steady: $(READY)
	@.ci/tools gcc chromium slurmctld
	.ci/steady $(N) $(TESTS)

check: $(READY)
	@$(MAKE) --no-print-directory -j 2 --output-sync types style collection

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types:
	$(BIN)/mypy

# Beside the types, on the other core: what is compiled here is ready for every process of the tests.
collection:
	@found=$$($(BIN)/pytest --collect-only -qq 2>&1) || { echo "$$found"; exit 1; }
	@# the first picture would take twice as long, and a chat waits for it
	@$(BIN)/python -c 'import matplotlib.backends.backend_agg, matplotlib.figure'

bench: $(READY)
	@.ci/tools tsp
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt $(EDITABLE) -e '.[dev,bench]'
	$(BIN)/python -m benchmarks

evidence: $(READY)
	@.ci/tools gcc
	$(BIN)/pytest -m evidence -s --timeout 5400

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(VENV) || { .ci/tools venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt $(EDITABLE) -e '.[dev]'
	@touch $(RUN_READY) $(READY)

# only what running needs: the tools for tests take several times as long
$(RUN_READY): pyproject.toml constraints.txt
	@echo "Installing nightshift into $(VENV). This is done once and takes some seconds."
	@$(PYTHON) -m venv $(VENV) || { .ci/tools venv && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --no-compile --disable-pip-version-check -c constraints.txt $(EDITABLE) -e .
	@touch $(RUN_READY)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
