# Sluicegate. `make demo` and `make test` need Python 3.11+, git and make; the rest is installed here.
SHELL := /bin/bash
export PATH := $(HOME)/.local/bin:$(PATH)
UV  ?= uv
RUN := $(UV) run --frozen --extra server
PYTEST ?= $(RUN) pytest

.PHONY: demo up test lint fmt e2e bench rego setup opa uv clean

uv:
	@command -v $(UV) >/dev/null || python3 -m pip install --quiet --user uv \
	  || python3 -m pip install --quiet --user --break-system-packages uv

setup: uv
	@$(UV) sync --frozen --quiet --extra server

demo: setup
	@$(RUN) sluicegate demo

up: setup
	@$(RUN) sluicegate up

# Real OPA, built from the Go module proxy and cached by version under the user's cache folder.
opa: setup
	@$(RUN) python -m policy_engine.rules.toolchain

test: opa
	$(PYTEST) tests

e2e: opa
	$(PYTEST) tests/e2e

lint: opa
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports --no-cache
	$(RUN) python -m policy_engine.rules.build --check
	$(RUN) python -m policy_engine.migrations.check

fmt: setup
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

# Rebuilds the committed policy bundle.
rego: opa
	$(RUN) python -m policy_engine.rules.build

bench: opa
	$(RUN) python bench/ledger.py
	$(RUN) python bench/admission.py

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache
