# Every command of the project. `make help` prints the lines that carry a `##`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
STACK := $(PY) -m scripts.stack
# Two processes fill two cores; more workers only wait for each other.
TEST_WORKERS ?= 2
BEGAN := $(shell date +%s)
# So that the many engines of the tests do not all compile the same loops at their start.
COMPILED_ONCE := $(PY) -m trainer.inference.embedded.kernels
export OMP_NUM_THREADS ?= 1
ifdef PORT
export OPENCOMPOSER_PORT := $(PORT)
endif

# The help pages that the product serves, and what they are made from.
HELP := build/help/index.html
HELP_SOURCES := mkdocs.yml requirements.lock $(shell find docs scripts/docs trainer/config trainer/learning/metrics.py opencomposer composer_web \
  -name '*.md' -o -name '*.py' -o -name '*.png' -o -name '*.jsonl')

.PHONY: help install system demo up services down status test test-integration test-slow test-docker test-vllm test-peers redteam fuzz fuzz-api lint format lock docs bench study base-policy clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## create .venv from the hashed lock (does nothing when it is up to date)
	@bash scripts/install.sh

demo: install $(HELP) ## start the product and train the toy policy, live (DEMO_NEW=1 anew, DEMO_EXIT=1 ends after the run, PORT=…)
	@exec $(STACK) demo $(if $(filter 1,$(DEMO_NEW)),--new) $(if $(filter 1,$(DEMO_EXIT)),--exit)

up: install $(HELP) ## start the product until Ctrl-C (DETACH=1 leaves it running, PORT=…)
	@exec $(STACK) up $(if $(filter 1,$(DETACH)),--detach)

services: install ## start Postgres and Valkey alone, detached
	@exec $(STACK) up --only-services --detach

down: ## stop everything that `make up`, `make demo` or `make services` started
	@if [ -x $(PY) ]; then exec $(STACK) down; fi

status: ## what is running, where, and since when
	@if [ -x $(PY) ]; then exec $(STACK) status; else echo "not installed: make install"; fi

system: ## check for the system packages that tests need, and install them when root
	@bash scripts/system.sh test

test: install system lint ## lint, types, layers and the fast tests
	@# Each worker takes one half in order, so that a module is set up once, and what is left when one ends is shared.
	@# A failure is a failure: nothing is run again.
	@# The bench `house` reads the seconds of the last whole run that passed, lint included.
	@mkdir -p .data && rm -f .data/test_seconds
	@$(COMPILED_ONCE)
	@$(PY) -m pytest -q -n $(TEST_WORKERS) --dist worksteal --durations-file .data/test_durations.txt $(ARGS)
	@$(if $(ARGS),,echo $$(( $$(date +%s) - $(BEGAN) )) > .data/test_seconds)

test-integration: install system ## real engines, killed processes, whole training runs, the browser, sweeps
	@$(COMPILED_ONCE)
	@$(PY) -m pytest -q -m "integration and not slow and not gpu and not docker" -n $(TEST_WORKERS) --dist worksteal --durations-file .data/integration_durations.txt $(ARGS)

test-slow: install system ## what takes longest: tests above twenty seconds, daily jobs, kills of the whole stack
	$(PY) -m pytest -q -m "slow and not gpu and not docker" --timeout 1200 $(ARGS)

test-docker: install ## the sandbox suites on a Docker engine (root with dockerd: a private one is started and stopped)
	@$(PY) -m tests.docker_engine $(PY) -m pytest -q -m docker --timeout 600 tests/sandbox $(ARGS)

test-vllm: install ## the inference contract on a real vLLM server (its CPU build, in .venv-vllm: 2.5 GB; VLLM_VENV=… has it)
	@$(PY) -m tests.vllm_server $(PY) -m pytest -q -m slow -n0 tests/trainer/inference/vllm/test_vllm_real.py tests/trainer/inference/vllm/test_vllm_families.py $(ARGS)

test-peers: install ## Harbor's and Inspect's own packages read our exports (in .venv-peers, made once; needs python3.12)
	@test -x .venv-peers/bin/python || { python3.12 -m venv .venv-peers \
	  && .venv-peers/bin/pip install -q harbor==0.24.0 inspect_ai==0.3.285; } || { rm -rf .venv-peers; exit 1; }
	$(PY) -m pytest -q -m slow -n0 tests/sandbox/formats/test_peers.py $(ARGS)

redteam: install ## every exploit of the catalogue beside an honest run, on every backend (BACKENDS=namespaces,docker)
	@exec $(PY) -m tests.redteam --backends "$(BACKENDS)" $(ARGS)

fuzz: install ## every parser of foreign bytes under a coverage-guided fuzzer (SECONDS=30 for each, TARGETS=diff,junit)
	@exec $(PY) -m tests.fuzz --seconds $(or $(SECONDS),30) --targets "$(TARGETS)"

fuzz-api: install ## every operation of the API against its description, with other inputs (EXAMPLES=30, SEED=1)
	API_EXAMPLES=$(or $(EXAMPLES),30) API_SEED=$(or $(SEED),1) $(PY) -m pytest -q -m slow -n $(TEST_WORKERS) --timeout 3600 tests/web/api/test_api_properties.py $(ARGS)

lint: install ## ruff, mypy, the layers, the lock and the links of the docs
	@$(PY) -m scripts.lint

format: install ## rewrite the code the way the linter wants it
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

lock: install ## compile requirements.lock anew from requirements.in and the dev extra
	$(PY) -m scripts.lock $(ARGS)

docs: install $(HELP) ## the help pages in build/help, strictly: broken links and anchors fail

$(HELP): $(HELP_SOURCES) | install
	@$(PY) -m scripts.docs

bench: install ## a measurement: NAME=sandbox|engine|codec|learning|… (last line: one JSON object; RECORD=1 NOTE=… keeps it)
	@export BENCH_COMMAND='make bench NAME=$(NAME)$(if $(ARGS), ARGS="$(ARGS)")'; exec $(PY) -m tests.bench $(or $(NAME),$(error say which: make bench NAME=sandbox)) $(ARGS)

study: install $(HELP) ## SmolLM2 through import, SFT, evaluation and RL by the API (SIZE=smoke|full, SEED=0, TEACHER=endpoint); resumes
	@exec $(PY) -m scripts.study --size $(or $(SIZE),smoke) --seed $(or $(SEED),0) --teacher "$(TEACHER)"

base-policy: install ## train the shipped base policy again from scratch
	$(PY) -m trainer.recipes.base_policy $(ARGS)

clean: down ## remove what can be made again; .data (runs, weights, database) stays
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache staticfiles
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
