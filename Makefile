# Two commands do all the set-up: `make run` and `make test`. Both make their own virtual environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: run test check bench evidence clean

run: $(READY)
	@if [ -f .env ]; then exec $(BIN)/nightshift --env-file .env up; else exec $(BIN)/nightshift demo; fi

test: check
	@.ci/tools gcc chromium
	@# most tests wait for processes: two at once for each core
	$(BIN)/pytest -n $$(( $$(nproc) * 2 )) --dist worksteal -m "not evidence"

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	@.ci/tools tsp
	$(BIN)/python -m benchmarks

evidence: $(READY)
	@.ci/tools gcc
	$(BIN)/pytest -m evidence -s --timeout 5400

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(VENV) || { .ci/tools venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
