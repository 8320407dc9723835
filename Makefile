# Needs Python 3.11 or newer with its venv module, and a network the first time. `make` lists the targets.
# Another interpreter: make PYTHON=python3.12 demo
PYTHON ?= python3
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check env format

MAIN := .venv
SERVICE := .venv-service
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help:  ## List the targets
	@echo "hyper3-stack: train, export, serve and search hyperbolic image-text models"
	@echo
	@sed -nE 's/^([a-z]+):.*  ## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: env  ## The whole road on emoji scenes: data, training, export, evaluation, service, search
	@deploy/demo.sh

test: $(MAIN)/.installed $(SERVICE)/.installed  ## All tests but the slow ones; then the service's where torch is not installed
	$(MAIN)/bin/python -m pytest -m "not slow"
	@$(SERVICE)/bin/python -c 'import importlib.util, sys; sys.exit("error: torch is installed in $(SERVICE), where the service is to run without it: remove that folder" if importlib.util.find_spec("torch") else 0)'
	$(SERVICE)/bin/python -m pytest -m "not slow" tests/service

check: $(MAIN)/.installed  ## What must be green before a change is handed in: format, lint, types, imports, tests
	$(MAIN)/bin/ruff format --check .
	$(MAIN)/bin/ruff check .
	$(MAIN)/bin/mypy
	$(MAIN)/bin/lint-imports
	@$(MAKE) --no-print-directory test

format: $(MAIN)/.installed  ## Format the code and apply the linter's safe fixes
	$(MAIN)/bin/ruff check --fix-only --quiet .
	$(MAIN)/bin/ruff format .

env: $(MAIN)/.installed  ## The environment in .venv with everything in it

# An environment is built anew only when pyproject.toml is newer than the last complete installation.
$(MAIN)/.installed: pyproject.toml
	$(call venv,$(MAIN))
	@echo "Installing into $(MAIN); the first time this takes some minutes: PyTorch alone is large."
	$(MAIN)/bin/python -m pip install --editable '.[trainer,service,demo,eval,pretrained,wandb]' --group dev
	@touch $@

$(SERVICE)/.installed: pyproject.toml
	$(call venv,$(SERVICE))
	@echo "Installing the service alone into $(SERVICE)."
	$(SERVICE)/bin/python -m pip install --editable '.[service]' --group test
	@touch $@

# A virtual environment with a pip that knows dependency groups, if it is not there yet.
define venv
	@command -v $(PYTHON) >/dev/null || { echo "error: there is no $(PYTHON) on this machine: install Python 3.11 or newer, or name yours: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $$($(PYTHON) --version) is too old: hyper3-stack needs 3.11 or newer. If a newer one is installed, name it: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual environments: install its venv module (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
endef
