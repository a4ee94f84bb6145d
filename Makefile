# Everything a checkout needs, on a Debian 12 machine with Rust, gcc and Python >= 3.11: `make test`, `make demo`.
#
# Set-up is a chain of stamp files under .tools/stamps, so that a second run does only what changed:
#   system packages (apt) -> .venv (private) -> Python packages (pinned) -> native build -> tools from crates.io (.tools)
# Nothing is installed outside the checkout except the apt packages that .ci/system-packages names.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

export PATH := $(HOME)/.cargo/bin:$(PATH)
export CARGO_TERM_COLOR ?= never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Many containers set it. The tests start thousands of Python processes, and each would compile all of cowfs: half of their time.
unexport PYTHONDONTWRITEBYTECODE

STAMPS := .tools/stamps
BIN := .venv/bin
NATIVE_SOURCES := $(shell find native cowfs/_native.pyi -name target -prune -o -type f -print 2>/dev/null)

export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export COWFS_TOOLS := $(CURDIR)/.tools/bin

.PHONY: help venv build tools test test-long test-integrations test-look test-training quick lint rust-test python-test modes-test race demo demo-s3 bench dist check-aarch64 clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 22

$(STAMPS)/system: .ci/system-packages
	.ci/system-packages
	@mkdir -p $(@D) && touch $@

$(STAMPS)/venv: .ci/make-venv | $(STAMPS)/system
	.ci/make-venv .venv
	@mkdir -p $(@D) && touch $@

$(STAMPS)/packages: $(STAMPS)/venv pyproject.toml .ci/constraints.txt
	.ci/install-packages $(BIN)/python
	@touch $@

venv: $(STAMPS)/packages ## the private virtual environment in .venv

$(STAMPS)/native: $(STAMPS)/packages .ci/build-native .ci/build-wheel .ci/wheel-arguments $(NATIVE_SOURCES)
	.ci/build-native $(BIN)/python
	@touch $@

build: $(STAMPS)/native ## the native engine and an editable install

$(STAMPS)/tools: .ci/install-tools | $(STAMPS)/system
	.ci/install-tools .tools
	@mkdir -p $(@D) && touch $@

tools: $(STAMPS)/tools ## pjdfstest and fsx from crates.io, in .tools

lint: build ## ruff, mypy, layer contracts, rustfmt, clippy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	cargo fmt --manifest-path native/Cargo.toml --all --check
	cargo clippy --manifest-path native/Cargo.toml --workspace --all-targets --locked -- -D warnings

rust-test: $(STAMPS)/packages
	cargo test --manifest-path native/Cargo.toml --workspace --exclude cowfs-python --locked

python-test: build tools
	.ci/run-pytest $(BIN)/python

modes-test: build tools
	.ci/run-modes $(BIN)/python

race: $(STAMPS)/packages ## engine and lane under the thread sanitizer; needs nightly Rust with rust-src, and minutes
	RUSTFLAGS=-Zsanitizer=thread COWFS_FUZZ_REQUESTS=$${COWFS_FUZZ_REQUESTS:-80000} cargo +nightly test \
	    --manifest-path native/Cargo.toml --target-dir native/target/race -Zbuild-std --target $$(uname -m)-unknown-linux-gnu \
	    -p cowfs-engine -p cowfs-lane --lib --test concurrency --test fuzz --locked

test: ## everything: lint, Rust tests, Python tests, conformance, real programs
	@start=$$SECONDS; \
	$(MAKE) --no-print-directory --jobs 2 build tools; .ci/check-tools; \
	$(MAKE) --no-print-directory --jobs 2 lint rust-test; $(MAKE) --no-print-directory python-test; \
	$(MAKE) --no-print-directory modes-test; \
	echo "all checks passed in $$((SECONDS - start)) s"

test-long: build tools ## the long tests in full: crashes, random operations, hostile stores; about an hour
	COWFS_TEST_EFFORT=1 $(BIN)/python -m pytest -m slow -v --durations=15 -n 4 --dist loadfile --no-loadscope-reorder

$(STAMPS)/integrations: $(STAMPS)/native .ci/install-integrations pyproject.toml
	.ci/install-integrations .tools/integrations integrations
	@touch $@

$(STAMPS)/airflow: $(STAMPS)/native .ci/install-integrations pyproject.toml
	.ci/install-integrations .tools/airflow airflow
	@touch $@

test-integrations: $(STAMPS)/integrations $(STAMPS)/airflow ## tasks of Dask, Ray, Prefect, Dagster, Metaflow and Airflow; a notebook; policies by MinIO's code; 1.6 GB, some eight minutes
	.tools/integrations/bin/python -m pytest -v tests/frameworks --ignore tests/frameworks/test_airflow.py
	.tools/airflow/bin/python -m pytest -v tests/frameworks/test_airflow.py
	$(BIN)/python -m pytest -v tests/permissions/minio

$(STAMPS)/look: $(STAMPS)/native .ci/install-integrations .ci/system-packages pyproject.toml
	.ci/system-packages chromium
	.ci/install-integrations .tools/look look
	@touch $@

test-look: $(STAMPS)/look ## `cowfs web` in Debian's Chromium: all pages by keyboard, axe, schemathesis; some two minutes
	.tools/look/bin/python -m pytest -v tests/web/browser

$(STAMPS)/training: $(STAMPS)/native .ci/install-integrations pyproject.toml
	.ci/install-integrations .tools/training training
	@touch $@

test-training: $(STAMPS)/training ## checkpoints of PyTorch, Lightning and Hugging Face; 5.7 GB of packages, some five minutes
	.tools/training/bin/python -m pytest -v tests/training

quick: build ## the fast tests only
	$(BIN)/python -m pytest -m quick -q

demo: build ## the main job on real input, on a store in a local directory
	$(BIN)/python docs/demo.py

demo-s3: build ## the same against a SeaweedFS server, killed and restarted between the two versions
	$(BIN)/python docs/demo.py --store s3

$(STAMPS)/bench: $(STAMPS)/native
	$(BIN)/python -m pip install --quiet --constraint .ci/constraints.txt --group bench
	@touch $@

bench: $(STAMPS)/bench ## cowfs beside other file systems, into docs/benchmarks; BENCH="options", PASSTHROUGH_HP=PROGRAM
	cargo build --quiet --release --manifest-path native/Cargo.toml --locked -p cowfs-lane --example do_nothing
	$(BIN)/python -m benchmarks.suite $(BENCH)

dist: $(STAMPS)/packages ## sdist and wheels in dist/, for x86-64 and aarch64; the wheels install without a compiler
	.ci/build-dist $(BIN)/python dist
	.ci/build-other-wheel $(BIN)/python dist

check-aarch64: ## the aarch64 wheel of dist/ beside Debian's arm64 Python, under qemu-user
	.ci/check-aarch64 $(BIN)/python dist/cowfs_volumes-*_aarch64.whl

clean: ## all that was built here
	rm -rf .venv .tools native/target dist cowfs/_native*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find cowfs tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +
