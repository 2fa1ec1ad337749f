# `make help` lists the targets. `make demo` and `make test` do all their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
NVRX := nvidia-resiliency-ext==0.4.1
ROTEL := rotel==0.0.1a15
STAMP := $(VENV)/.installed
PIP_INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
# Tests start hundreds of processes of ours: none of them shall compile the package again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help dev servers docs check format cpp-test test nightly neighbours lock wheel demo bench bench-detection bench-peers rehearsal soak fuzz examples clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# Of all packages but torch little is imported: Python compiles that when it is. torch is compiled
# here, or four ranks that start at once would each do it.
$(STAMP): pyproject.toml constraints-dev.txt $(wildcard cuda_ext/*/*.[ch]pp cuda_ext/*/*/*.hpp cuda_ext/*/*/*/*.hpp)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) $(TORCH)
	$(PIP_INSTALL) --no-compile -c constraints-dev.txt -e '.[dev]'
	$(PIP_INSTALL) --no-compile --no-deps $(NVRX) || \
	    echo 'no wheel of $(NVRX) for this Python: the comparison with it is skipped'
	touch $@

dev: $(STAMP) ## create .venv with everything for development

.PHONY: installed
installed: dev $(AFTER)

servers: ## install what tests start and send with (Debian's packages, npm; needs root or sudo)
	@tests/servers/install $(DOSE)

format: dev ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: screenshots
screenshots: dev servers ## pictures of the live page in docs/images, from real runs (four minutes)
	$(BIN)/python docs/screenshots.py

.PHONY: generate
generate: dev servers ## write reference pages, alerts, dashboards and the report's script from the code
	$(BIN)/python docs/generate.py

docs: dev ## the documentation as a site, in out/site
	$(PIP_INSTALL) -c constraints-dev.txt mkdocs-material
	$(BIN)/mkdocs build --strict --quiet

check: dev ## format, lint, types, import contracts, reference pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/generate.py --check

cpp-test: $(AFTER) ## the C++ tests under ASan and UBSan; DOSE=nightly: plain, under TSan and for arm64, too
	$(MAKE) --no-print-directory --jobs=$$(nproc) --output-sync=target -C cuda_ext $(or $(DOSE),test)

# pip needs one core for most of its time: the C++ tests, which need nothing that it installs, have
# the other. `check` needs one core, too: it runs alongside the other tests, and after it the
# environments of the neighbours are built and tried, since each alone leaves a core idle towards
# its end.
test: ## all that CI runs for each push
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target AFTER=servers installed cpp-test
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target BEFORE=check py-test neighbours

nightly: ## all that there is: every dose, C++ test and neighbour; real servers with Prometheus 3, too
	$(MAKE) --no-print-directory DOSE=nightly test
	tests/servers/prometheus3 $(BIN)/python -m pytest -m 'real_server and not browser' tests

# Without DOSE=nightly, what is marked so is left to the night.
ONLY_PUSH = $(if $(DOSE),, and not nightly)
# Under CI a test that fails is tried once more; up to three that pass then are named and let through
# (tests/conftest.py).
PYTEST = $(if $(DOSE),HYPOTHESIS_PROFILE=nightly )$(BIN)/python -m pytest --durations 40 --durations-min 2 $(if $(CI),--reruns 1)

# Much of a test is waiting: four at a time keep two cores busy. A file stays in one process, as
# does a folder whose files share processes of their own (tests/conftest.py). They go out in their
# order: by the number of their tests those with few long ones would come last. On a clean checkout
# one process compiles all of them first, which takes as long as in each of the four.
.PHONY: py-test
py-test: dev ## the Python tests, but for those of the neighbours
	@ls tests/__pycache__/*-pytest-*.pyc >/dev/null 2>&1 || $(PYTEST) --collect-only -qq >/dev/null || true
	$(PYTEST) --numprocesses 4 --dist loadfile --no-loadscope-reorder -m 'not neighbours$(ONLY_PUSH)'

neighbours: dev $(BEFORE) ## the package with the oldest and newest libraries; DOSE=nightly: and others, on Python 3.10 to 3.13
	$(PYTEST) -m 'neighbours$(ONLY_PUSH)' tests/neighbours

lock: ## requirements-all.txt with hashes, and out/sbom.json (CycloneDX) of the same
	$(PYTHON) -m venv out/lock-tools
	out/lock-tools/bin/pip install --quiet --disable-pip-version-check uv cyclonedx-bom
	sed '/^[^#]/,$$d' requirements-all.txt > out/lock
	out/lock-tools/bin/uv pip compile pyproject.toml --quiet --extra all -c constraints-dev.txt \
	    --generate-hashes --universal --python-version 3.11 --no-header >> out/lock
	mv out/lock requirements-all.txt
	out/lock-tools/bin/cyclonedx-py requirements requirements-all.txt -o out/sbom.json

wheel: dev ## build the wheel into dist/, audit its ABI, load it on every Python found
	WHEEL_FOLDER=dist $(BIN)/python -m pytest -rs tests/neighbours/test_wheel.py

# Only what the demo needs, in the same environment: `make dev` adds the rest. One core unpacks torch
# while the other compiles.
$(STAMP)-demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --no-compile $(TORCH) & \
	    $(PIP_INSTALL) --no-compile --no-deps -e . && wait $$!
	$(PIP_INSTALL) --no-compile -c constraints-dev.txt 'otel-straggler[all]'
	touch $@

demo: $(STAMP)-demo ## a real distributed training in which one rank becomes slow, and the alert that says so
	@test -t 1 && keep=--keep; \
	    $(BIN)/otel-straggler demo --train examples/demo/train.py --fault slow $$keep $(DEMO_FLAGS)

examples: dev ## run every example
	$(BIN)/python -m pytest tests/examples

bench: dev ## every number of docs/internals/costs.md and the README
	$(BIN)/python -m benchmarks

bench-detection: dev ## who finds the slow rank: all methods, all cases; then docs/internals/detection-accuracy.md
	$(BIN)/python -m benchmarks.detection --seeds 2 --summary docs/measurements/detection-B.json
	$(BIN)/python -m benchmarks.detection --render
	$(BIN)/python -m benchmarks.detection.unseen --summary docs/measurements/detection-unseen.json
	$(BIN)/python -m benchmarks.detection.unseen --render
	$(BIN)/python -m benchmarks.inside_backward --json docs/measurements/inside_backward.json
	$(BIN)/python -m benchmarks.inside_backward --render

rehearsal: dev servers ## each alert comes and goes when it should: real servers, three shards, TLS, two teams; needs otelcol
	$(BIN)/python -m benchmarks.rehearsal --json out/rehearsal.json

bench-peers: ## sections, reports and ingest beside NVRx and Rotel, in an environment with them (.venv-peers)
	@benchmarks/bench-peers $(PYTHON) .venv-peers $(TORCH) $(NVRX) $(ROTEL)

.PHONY: gpu-check gpu-soak gpu-dry-run
gpu-dry-run: dev ## all of gpu-check without a GPU, on a fake libcupti: whether every experiment runs, in 330 s
	rm -f out/gpu-dry-run.json
	$(BIN)/python -m benchmarks.gpu --fake --quick --seconds 330 --json out/gpu-dry-run.json

gpu-check: ## what timing kernels does on this machine's GPU, in ten minutes (PYTHON with torch)
	@$(PYTHON) -m benchmarks.gpu --here
	$(PYTHON) -c 'from setuptools import setup; setup()' --quiet build_ext --inplace
	$(PYTHON) -m benchmarks.gpu --json docs/measurements/gpu-check.json $(GPU_FLAGS)

gpu-soak: ## 25 million kernels in each way, in nine minutes
	@$(PYTHON) -m benchmarks.gpu --here
	$(PYTHON) -c 'from setuptools import setup; setup()' --quiet build_ext --inplace
	$(PYTHON) -m benchmarks.gpu --soak --json docs/measurements/gpu-check.json $(GPU_FLAGS)

soak: dev ## the long doses: ten million sections, spans over restarts, ten demos in a row
	OTEL_STRAGGLER_TEST_DOSE=full $(BIN)/python -m pytest --timeout 3600 tests/client/test_doses.py
	$(BIN)/python -m benchmarks.no_loss --restarts TERM,TERM
	$(BIN)/python -m benchmarks.no_loss --restarts TERM,KILL --seconds 120
	$(BIN)/python -m benchmarks.no_loss --restarts 'KILL*20' --spool --seconds 240 --away-s 0.5
	$(BIN)/python -m benchmarks.no_loss --restarts TERM,TERM --seconds 120 --span-budget 200
	$(BIN)/python -m benchmarks.no_loss --restarts TERM --seconds 480 --away-s 240
	$(BIN)/python -m benchmarks.collector_outage
	$(BIN)/python -m benchmarks.soak

fuzz: dev ## the property and mutation tests with 20,000 examples each, a million in C++; 100,000 frames for an agent
	$(MAKE) --no-print-directory -C cuda_ext fuzz
	OTEL_STRAGGLER_TEST_DOSE=full $(BIN)/python -m pytest --timeout 3600 tests/agent/test_hostile.py tests/checkpoint/test_streams.py
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest --timeout 3600 -m hypothesis tests

clean: ## remove what make made
	$(MAKE) -C cuda_ext clean
	rm -rf $(VENV) .venv-peers tests/interop/javascript/node_modules build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
