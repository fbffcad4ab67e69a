# `make` prints what there is to make. Each target sets up what it needs; after the first time that takes no time.

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast check simulate fuzz chaos bench bench-goals bench-quick clean

PYTHON ?= python3
BIN := .venv/bin
# In this order: a fault in a rule is found before a minute is spent on real Kafka and Spark.
FAST_TESTS := $(wildcard tests/unit tests/contract tests/scenario tests/simulation tests/fuzz)

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv, install Java if it is missing and may be, fetch the jars
	@PYTHON="$(PYTHON)" deploy/setup.sh

demo: setup ## run the demonstration: Kafka to Delta, a crash, the same table
	$(BIN)/python examples/demo.py

test: setup ## run all tests: the fast ones, then those with real Kafka and Spark
	$(BIN)/pytest -n auto --dist loadfile $(FAST_TESTS)
	$(BIN)/pytest tests/integration

test-fast: setup ## run the unit tests only
	$(BIN)/pytest tests/unit

simulate: setup ## kill drivers and break storage at random: SEEDS=10000 tries so many, SEED=7 replays one
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000)) $(if $(PLANT),--plant $(PLANT))

chaos: setup ## kill drivers, workers, executors and the broker, at full size: about an hour
	$(BIN)/pytest tests/chaos --timeout 900 --durations=0

fuzz: setup ## give every reader hostile input for SECONDS=60 seconds; prints executions and the input that failed
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

check: setup ## check style, format, types and the house rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest tests/test_tidy.py

bench: setup ## measure against the alternatives on this machine: about 35 minutes, best with nothing else running
	@bench/peers/setup.sh
	@bench/java/build.sh
	$(BIN)/python -m bench.compare $(BENCH)
	$(BIN)/python -m bench.compare --shape many $(BENCH)
	$(BIN)/python -m bench.report

bench-goals: setup ## measure ourselves: start, latency, idle sessions, history, memory ...: half an hour; QUICK=--quick: minutes
	for name in start overhead latency idle partitions history as_of memory files; do \
		$(BIN)/python -m bench.$$name $(QUICK) || failed="$$failed $$name"; \
	done; $(BIN)/python -m bench.report; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

bench-quick: setup ## the same, smaller: minutes, and less exact; its tables are printed, not kept
	@bench/peers/setup.sh
	@bench/java/build.sh
	$(BIN)/python -m bench.compare --quick --results build/bench $(BENCH)
	$(BIN)/python -m bench.report --results build/bench --print

clean: ## remove .venv and what tools left behind (not the jar cache, not data in .seriatim)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
