# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-unit lint clean

demo: $(STAMP)
	@$(BIN)/python examples/demo.py

# Everything but the tests of a real GPU. Two workers; the tests of a file run in one worker.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# Only tests that load no framework and start no process, in under a minute. An attempt to do either is an error.
test-unit: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m unit -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .demo build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# torch first: a range that another package asks for must not choose its version.
$(STAMP): pyproject.toml constraints.txt
	@echo "setting up $(VENV): a minute or two"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
