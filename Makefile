# Sluicegate. `make demo` and `make test` need Python 3.11+, git and make; the rest is installed here.
SHELL := /bin/bash
# uv from the PATH, else the build pinned in uv.lock (fetched once into the user's cache).
UV  := $(shell command -v uv || python3 .ci/get_uv.py)
ifeq ($(UV),)
$(error uv is missing and could not be fetched: see the line above)
endif
RUN := $(UV) run --frozen --extra server

.PHONY: demo up test lint fmt e2e bench rego setup opa clean

setup:
	@$(UV) sync --frozen --quiet --extra server

demo: setup
	@$(RUN) sluicegate demo

up: setup
	@$(RUN) sluicegate up

# Real OPA, built from the Go module proxy and cached by version under the user's cache folder.
opa: setup
	@$(RUN) python -m policy_engine.rules.toolchain

# Most of a system test is waiting for real timers, so three workers suit two cores.
WORKERS ?= 3
test: opa
	$(RUN) pytest tests -q -n $(WORKERS) --dist loadfile

# The heavy parts (kube-apiserver, QEMU, Postgres, a browser) get their tests with the work that needs them.
e2e: opa
	@if [ -d tests/e2e ]; then $(RUN) pytest tests/e2e; else echo "e2e: there are no end-to-end tests yet"; fi

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
