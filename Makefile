# The commands of the project. `make run` and `make test` work on a fresh clone: they set up what they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.9
# what an image, or a person who runs a single part, installs; all agree with dev.txt
EXTRA_LOCKS := control router gateway sidecar meshctl local pipeline build
COMPILE := $(UV) pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command 'make lock'

.DEFAULT_GOAL := help
.PHONY: help env stubs run test check soak bench clean lock

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

env: $(VENV)/.ready stubs ## the environment, .venv

$(VENV)/.uv: locks/uv.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else \
		f"Kafka Mesh needs Python 3.11, 3.12 or 3.13; {sys.executable} is {v[0]}.{v[1]}. Say which one to use: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || { echo 'making $(VENV)'; $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/uv.txt
	@touch $@

$(VENV)/.ready: $(VENV)/.uv locks/dev.txt pyproject.toml
	@echo 'installing packages into $(VENV)'
	@UV_LINK_MODE=copy $(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/dev.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

stubs: $(VENV)/.ready ## the gRPC stubs, from proto/ into mesh/rpc/v1
	@$(BIN)/python hatch_build.py

lock: $(VENV)/.uv ## resolve again and write locks/ (raises versions only with UPGRADE=1)
	@echo 'uv==$(UV_VERSION)' | $(UV) pip compile - --universal --python-version 3.11 --generate-hashes --quiet --no-emit-index-url \
		--no-emit-find-links --no-annotate --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) --output-file locks/uv.txt
	@$(COMPILE) --extra dev $(if $(UPGRADE),--upgrade) --output-file locks/dev.txt
	@for extra in $(EXTRA_LOCKS); do $(COMPILE) --extra $$extra --constraint locks/dev.txt --output-file locks/$$extra.txt || exit 1; done
