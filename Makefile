# The commands of the project. `make run` and `make test` work on a fresh clone: they set up what they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.9
QUIX_VERSION := 3.28.1
# what an image, or a person who runs a single part, installs; all agree with dev.txt
EXTRA_LOCKS := control router gateway gssapi sidecar console meshctl mcp local judge pipeline bench audit release docs build
COMPILE := $(UV) pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command 'make lock'

.DEFAULT_GOAL := help
.PHONY: help env stubs contract reference lock lock-kafka run test e2e check audit docs compose soak bench clean clients

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

env: $(VENV)/.ready $(if $(PIPELINE),$(VENV)/.pipeline) stubs ## the environment, .venv; PIPELINE=1 adds Spark

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

# Spark comes as source only, and is built with the setuptools of dev.txt.
$(VENV)/.pipeline: $(VENV)/.ready locks/pipeline.txt
	@echo 'installing Spark into $(VENV)'
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes --no-build-isolation-package pyspark -r locks/pipeline.txt
	@echo 'preparing Spark for quick starts'
	@$(BIN)/kafka-mesh pipeline prepare > /dev/null || echo 'without that, jobs only start more slowly: kafka-mesh pipeline prepare makes up for it later'
	@touch $@

$(VENV)/.flames: $(VENV)/.ready locks/bench.txt
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/bench.txt
	@touch $@

# an environment of its own: Quix Streams needs older releases of confluent-kafka and pydantic than the mesh
$(VENV)/quix/.ready: $(VENV)/.ready locks/quix.txt
	@$(UV) venv --quiet --clear $(VENV)/quix
	@$(UV) pip install --quiet --python $(VENV)/quix --require-hashes --requirements locks/quix.txt
	@touch $@

$(VENV)/.audit: $(VENV)/.ready locks/audit.txt
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/audit.txt
	@touch $@

$(VENV)/.release: $(VENV)/.ready locks/release.txt
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/release.txt
	@touch $@

stubs: $(VENV)/.ready ## the gRPC stubs, from proto/ into mesh/rpc; the compiled copy of the gateway's hot modules
	@$(BIN)/python hatch_build.py

contract: stubs ## for a release: keep its contract in proto/released, to compare later ones with
	@$(BIN)/python -m grpc_tools.protoc --proto_path=proto --include_imports \
		--proto_path=$$($(BIN)/python -c 'import hatch_build; print(hatch_build.googleapis())') \
		--descriptor_set_out=proto/released/$$($(BIN)/python -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])').binpb \
		proto/mesh/v1/*.proto

reference: env ## the pages in docs/reference that follow from the code; alerts and dashboards, from deploy/monitoring
	@$(BIN)/python -m docs.reference

lock: $(VENV)/.uv ## resolve again and write locks/ (raises versions only with UPGRADE=1)
	@echo 'uv==$(UV_VERSION)' | $(UV) pip compile - --universal --python-version 3.11 --generate-hashes --quiet --no-emit-index-url \
		--no-emit-find-links --no-annotate --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) --output-file locks/uv.txt
	@echo 'quixstreams==$(QUIX_VERSION)' | $(UV) pip compile - --universal --python-version 3.11 --generate-hashes --quiet --no-emit-index-url \
		--no-emit-find-links --no-annotate --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) --output-file locks/quix.txt
	@$(COMPILE) --extra dev $(if $(UPGRADE),--upgrade) --output-file locks/dev.txt
	@for extra in $(EXTRA_LOCKS); do $(COMPILE) --extra $$extra --constraint locks/dev.txt --output-file locks/$$extra.txt || exit 1; done
	@! grep -l '://' locks/*.txt || { echo 'locks hold hashes, no addresses'; exit 1; }

lock-kafka: env ## write the lock of Kafka's jars again (needs Maven)
	@$(BIN)/python -m local.jar_lock

run: env ## the whole mesh on this machine: ARGS="--cluster ..." for options
	@$(BIN)/kafka-mesh up $(ARGS)

test: env ## each feature at its own level, against real Kafka and PostgreSQL
	@$(BIN)/$(if $(ARGS),pytest $(ARGS),python -m tests.side_by_side test)

e2e: env ## whole meshes as their users start them, foreign clients, kills, the judge, and Spark
	@$(BIN)/python -m tests.side_by_side e2e

compose: env ## the images and docker-compose.yml: built, started, killed and healed
	@$(BIN)/pytest tests/compose $(ARGS)

clients: env ## the client tests, and their table into tests/clients/README.md
	@MESH_WRITE_MATRIX=1 $(BIN)/pytest tests/clients $(ARGS)

check: env ## style, types, plain English, and who may import whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo 'not formatted; run: $(BIN)/ruff format .'; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.plain_english

audit: env $(VENV)/.audit ## weaknesses that are known: in patterns of code (bandit's rules), in locked packages
	@$(BIN)/ruff check .
	@$(BIN)/python -m tests.advisories $(ARGS)

docs: env ## the pages of each version as a site with a search, which needs no server: build/site/index.html
	@$(BIN)/python -m docs.versions

soak: env ## what takes longer: repeats, random kills, volumes
	@MESH_REPEAT=$${MESH_REPEAT:-20} $(BIN)/pytest -o faulthandler_timeout=0 -rP $(if $(ARGS),$(ARGS),-m 'soak or repeated' tests)

bench: env $(if $(FLAMES),$(VENV)/.flames) $(if $(QUIX),$(VENV)/quix/.ready) ## figures, not verdicts; also in build/bench.md; FLAMES=1 adds flame graphs, QUIX=1 Quix Streams
	@$(BIN)/pytest -o faulthandler_timeout=0 -s tests/bench $(ARGS)

clean: ## what can be made again; the state of `make run` stays (remove .kafka-mesh yourself)
	@rm -rf $(VENV) mesh/rpc/v1 mesh/rpc/prometheus services/gateway/compiled .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
