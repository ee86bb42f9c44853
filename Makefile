# The tasks of a contributor. `make` alone lists them.

PYTHON ?= python3
PART   ?=
BIN    := .venv/bin
STAMP  := .venv/.installed
CODE   := src tests $(wildcard bench java)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test lint format soak bench jar lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## create .venv with the packages of requirements.lock and this package

demo: install ## run the demo: scaling, kill -9, a failing endpoint and a bad row, audited, in one to two minutes
	$(BIN)/tailrace demo

test: install ## run all tests except the soak-only ones
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "not soak"

lint: install ## check style, types, layers and the rules of the repository
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/unit/test_tidy.py

format: install ## format the code and apply ruff's safe fixes
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

soak: install ## run the long tests at full counts and write docs/evidence.md (PART=log for one part)
	$(BIN)/python -m tests.soak $(PART)

bench: install ## run the benchmarks and write bench/results.md
	$(BIN)/python -m bench

jar: install ## compile the native reader of Spark (needs javac)
	$(BIN)/python -m java.build

lock: install ## update requirements.lock from pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --all-extras --upgrade --no-header \
		--quiet --output-file requirements.lock pyproject.toml

clean: ## remove .venv, caches and the files of the demo
	rm -rf .venv build dist demo-data .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests $(wildcard bench java) -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tailrace needs Python 3.11 or newer; name one: make install PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) lacks the venv module; install it (Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "installing into .venv (a few minutes the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m tailrace.spark.archive >/dev/null || \
		echo "the class archive could not be created; Spark will start slower" >&2
	@touch $@
