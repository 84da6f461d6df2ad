# Everything sets itself up: `make train` and `make test` create .venv and install the package first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE_SOURCES := $(wildcard CMakeLists.txt jhgnn/native/*.cc jhgnn/native/*.h jhgnn/native/cuda/*.cc jhgnn/native/cuda/*.h \
	jhgnn/native/cuda/*.cu)

.PHONY: compare train test test-all lint types format bench-quick clean help

help: ## Show the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

# --no-compile: Python compiles what it imports at its first import, a fraction of what is installed (37 s less).
$(VENV)/.installed: pyproject.toml $(NATIVE_SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	touch $@

train: $(VENV)/.installed ## Set up and train HAN on the embedded synthetic ACM graph (offline after the install).
	$(BIN)/python -m jhgnn.train --config configs/han_acm.toml

test: $(VENV)/.installed ## Set up and run the default tests.
	$(BIN)/python -m pytest -n 2

test-all: $(VENV)/.installed ## The default tests and the slow ones.
	$(BIN)/python -m pytest -n 2 -m ''

lint: $(VENV)/.installed ## Check format and lint.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.installed ## Check types.
	$(BIN)/mypy

format: $(VENV)/.installed ## Format and fix what can be fixed.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

compare: STARTED := $(shell date +%s)
compare: $(VENV)/.installed ## Compare with DGL and PyG, which it installs in .venv-peers (40 minutes; ARGS=--quick: 8).
	$(BIN)/python -m bench.compare --started $(STARTED) $(ARGS)

clean: ## Remove the environment and what was built; runs stay.
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
