# What people type. Every target makes its own set-up first: on a fresh machine `make test` is enough.
#
#   make PYTHON=python3.12 test      another interpreter (3.11 or newer)
#   make VENV=/tmp/venv test         another place for the virtual environment
#   make test ARGS="-k retention"    arguments for pytest
#   make mutants ROOM=log COUNT=50   mutants of a room's code, or of all; without ROOM the bugs planted by hand
#   make scorecard MINUTES=60        all fault classes in turn; SHORT=1: in 8 minutes, without Spark
#   make sim SEED=7 ARGS="--count 50"  seeds of the simulator
#   make demo ONCE=1                 end after the checklist, and fail unless every line of it holds

PYTHON  ?= python3
VENV    ?= .venv
# For two cores: tests of clients wait for a broker, and those of Spark for a JVM, as long as they compute. With four a
# tenth of the processors was idle; each more takes eight seconds to collect the tests.
WORKERS ?= 5
ARGS    ?=
# Of `make mutants`: how many for each room, and which.
COUNT   ?= 20
SEED    ?= 1
# Of `make scorecard`; SHORT=1: 8 minutes.
MINUTES ?= 60

BIN     := $(VENV)/bin
# Removed by `make clean` with what it stands for.
COLLECTED := tests/__pycache__/.collected
# Two stamps, so that a second run does nothing: the environment exists; the package is installed in it.
MADE    := $(VENV)/.foldlog-made
READY   := $(VENV)/.foldlog-ready
KERNELS := $(shell find src -name '*.pyx' -o -name '*.pxi' -o -name '*.pxd')

# Tests and brokers start hundreds of Python processes: each would compile everything again where this is set.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup test test-faults test-kafka mutants scorecard sim lint docs release-check bench bench-kafka demo clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## check the machine, make the virtual environment, install, compile the kernels

# Workers that meet new tests at one time would each prepare their asserts, which takes longer than collecting them.
$(COLLECTED): | $(READY)
	@echo "preparing the tests, once"
	@printf '%s\n' tests/*/ | xargs -P 2 -n 4 $(BIN)/python -m pytest --collect-only -q >/dev/null 2>&1 || true
	@mkdir -p $(@D) && touch $@

test: $(READY) $(COLLECTED) ## run the tests; ends with what was skipped and how to enable it
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope $(ARGS)

test-faults: $(READY) ## the long runs: kill -9, failing disks, every engine, the benchmarks and the demo
	$(BIN)/python -m pytest -n 3 --dist loadscope -m faults $(ARGS)

test-kafka: $(READY) ## with Apache Kafka and a Spark cluster; needs Java, Maven and Maven Central
	$(BIN)/python -m pytest -n 2 --dist loadscope -m kafka $(ARGS)

mutants: $(READY) ## whether the tests notice planted bugs; ROOM=log COUNT=20 SEED=1: mutants of a room's code
	$(BIN)/python -m mutants $(if $(ROOM),--room $(ROOM) --count $(COUNT) --seed $(SEED)) $(ARGS)

scorecard: $(READY) ## every fault class, counted, for MINUTES=60; goes on where it ended; writes docs/scorecard.md
	$(BIN)/python -m scorecard --minutes $(if $(SHORT),8,$(MINUTES)) $(ARGS)

sim: $(READY) ## a simulated broker under faults, from SEED=1; a seed that fails is replayed and shrunk
	$(BIN)/python -m scorecard.simulator --seed $(SEED) $(ARGS)

lint: $(READY) ## style, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY) ## the pages of docs/ as a site in site/; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)
	@echo "read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site 8000"

release-check: $(READY) ## build sdist and wheels, and install them into empty environments; ARGS="--python …"
	$(BIN)/python scripts/release_check.py $(ARGS)

bench: $(READY) ## measure speed beside the machine's limit and the alternatives
	$(BIN)/python -m bench $(ARGS)

bench-kafka: $(READY) ## the same beside Apache Kafka, with the same clients; needs Java, Maven and 15 GB of disk
	$(BIN)/python -m bench.kafka $(ARGS)

demo: $(READY) ## the whole of it at work, in a minute, and a checklist; ONCE=1 ends by itself
	@$(BIN)/python -m foldlog.cli.main demo $(if $(ONCE),--once) $(ARGS)

clean: ## remove what was compiled and cached; the virtual environment stays (rm -r .venv)
	rm -rf build dist site src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache $(READY)
	find src \( -name '*.so' -o -name '*.c' \) -delete
	find src tests bench demo scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@sh scripts/check_machine.sh "$(PYTHON)" "$(VENV)"
	@echo "[2/3] making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv "$(VENV)"
	@touch $@

$(READY): pyproject.toml setup.py $(KERNELS) $(MADE)
	@sh scripts/install.sh "$(VENV)"
	@touch $@
