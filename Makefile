PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint check bench fmt clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

demo: .venv/demo.ok ## train FedAT and FedAvg on real processes; report in runs/demo
	$(BIN)/fedat demo $(ARGS)

test: .venv/dev.ok ## run the tests with the coverage gate
	$(BIN)/python -m pytest --cov --cov-report=term $(ARGS)

lint: .venv/dev.ok ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## what CI runs

bench: .venv/dev.ok ## measure the claims of speed; one JSON object
	@$(BIN)/fedat bench $(ARGS)

fmt: .venv/dev.ok ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## forget the environments and all results
	rm -rf .venv .venv-peers build dist *.egg-info runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find fedat_service workers -name '*.so' -delete

.venv/demo.ok: pyproject.toml constraints.txt setup.py $(wildcard fedat_service/wire/_polyline*.[ch] workers/training/*.[ch] workers/training/stacked/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[worker,report]'
	touch $@

.venv/dev.ok: .venv/demo.ok
	$(PIP) -e '.[dev]'
	touch $@
