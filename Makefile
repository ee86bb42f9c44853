# Everything a contributor does, each by one word. `make` alone lists them.

PYTHON ?= python3
PART   ?=
BIN    := .venv/bin
STAMP  := .venv/.installed
CODE   := src tests $(wildcard bench)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test lint format soak bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## build .venv with everything in requirements.lock and this package

demo: install ## watch a topic being re-scaled and a pipeline meet a bad row, in a minute or so
	$(BIN)/tailrace demo

test: install ## run all tests but the soak-only ones
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "not soak"

lint: install ## check style, types, layers and the repository's own rules
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

bench: install ## measure against the peers and write bench/results.md
	$(BIN)/python -m bench

lock: install ## resolve pyproject.toml again into requirements.lock
	$(BIN)/uv pip compile --universal --generate-hashes --all-extras --upgrade --no-header \
		--quiet --output-file requirements.lock pyproject.toml

clean: ## remove .venv, caches and what the demo left
	rm -rf .venv build dist demo-data .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests $(wildcard bench) -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tailrace needs Python 3.11 or newer; name one: make install PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) lacks the venv module; install it (Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "installing into .venv (about two minutes the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m tailrace.spark.archive >/dev/null || \
		echo "no class archive was made: Spark starts slower, and is the same otherwise" >&2
	@touch $@
