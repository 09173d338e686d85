# LatencyProbe: every target is short; the work is in scripts/. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Where bytecode is not kept, each worker of pytest compiles all tests anew: a quarter of the time of `make check`.
export PYTHONDONTWRITEBYTECODE :=

# -- eBPF: compiled ahead, CO-RE. -mcpu=v2: newer defaults emit atomics that Linux 5.10 refuses. Line numbers in them name
# files: those of the repository without where it lies, so that every checkout compiles the same bits.
MACHINE := $(shell uname -m)
ARCH := $(or $(patsubst aarch64,arm64,$(filter aarch64,$(MACHINE))),$(patsubst x86_64,x86,$(filter x86_64,$(MACHINE))),$(MACHINE))
CLANG := clang-19
BPF_FLAGS := -O2 -g -Wall -Werror -target bpf -mcpu=v2 -D__TARGET_ARCH_$(ARCH) -I bpf -idirafter /usr/include/$(MACHINE)-linux-gnu "-ffile-prefix-map=$(CURDIR)=."
# http2.bpf.c is for Linux 6.12 and newer, and needs the results of atomic operations.
build/bpf/http2.bpf.o: BPF_FLAGS := $(subst mcpu=v2,mcpu=v3,$(BPF_FLAGS))
BPF_OBJECTS := $(patsubst bpf/%.bpf.c,build/bpf/%.bpf.o,$(wildcard bpf/*.bpf.c))

.PHONY: help setup bpf gen demo lint unit check manifests sbom release test fresh test-large test-kernels bench bench-scale environment everything clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^#: /{sub(/^#: /, ""); print $$0} /^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' Makefile

#: Try it
demo: setup ## a real Redis, load, a slow phase: the report tells where the time went
	@scripts/demo

#: Change it (CONTRIBUTING.md)
setup: environment ## install what is needed (Debian packages, .venv), build the eBPF objects
	@$(MAKE) --no-print-directory bpf

check: environment lint unit ## the developer's loop: lint, types, unit tests

lint: ## ruff, mypy (the packages; what tests and benchmarks call), clang-format, shellcheck
	@scripts/lint

unit: ## tests that need no root, cluster or clang, and no patience
	@$(BIN)/pytest -q -n auto --dist loadfile --hypothesis-profile=quick --ignore tests/bpf -m "not slow and not long and not root and not cluster and not e2e"

bpf: $(BPF_OBJECTS) ## compile the eBPF programs to build/bpf/
	@:

gen: ## regenerate what is generated: records.py, syscalls.py, histogram.h, docs/telemetry.md, dashboards
	@for script in scripts/gen_*.py; do $(BIN)/python "$$script"; done

clean: ## remove what was built here (caches outside the repository stay)
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

#: Ship it
manifests: environment ## build/manifests/: the chart for `kubectl apply -f`; SET="--set otlp.endpoint=...": more values
	@mkdir -p build/manifests
	@scripts/manifests $(SET) >build/manifests/latencyprobe.yaml
	@cp examples/plain/secrets.sh build/manifests/
	@echo "manifests: build/manifests/latencyprobe.yaml, secrets.sh"

sbom: ## build/sbom/: what both images hold, as CycloneDX (needs root, builds the images)
	@scripts/setup --test
	@mkdir -p build/sbom
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) tests/e2e/bench/bench sbom build/sbom

release: environment ## build/release/: wheel, deb, chart, manifests, images, SBOMs, plugin of kubectl, sums; WITHOUT=images: no root
	@$(BIN)/python -m release $(WITHOUT:%=--without %) $(URL:%=--url %)

#: Prove it, measure it
test: everything ## everything, the real two-node cluster included (installs and builds what it needs)
	@scripts/test

fresh: ## `make test` as a newcomer's machine runs it: a new Debian 12 root, no caches; see scripts/fresh
	@scripts/fresh

test-large: everything ## the tests that can be as large as patience allows, each in full (hours); scripts/large KILLS: those of a variable
	@scripts/large

test-kernels: everything ## the kernel tests on Linux 5.10, 6.1, 6.12 and the newest, in emulation (QEMU)
	@tests/kernels/run

bench: ## what measuring costs, beside its goals and other tools; OF=stamps: one part (python -m benchmarks --help)
	@scripts/setup --bench
	@$(MAKE) --no-print-directory bpf
	@$(BIN)/python -m benchmarks $(OF:%=--of %)

bench-scale: environment ## what the operator costs by the size of the cluster, under played agents; NODES=500: one size; API=real: no played API server
	@$(BIN)/python -m benchmarks.scale $(NODES:%=--nodes %) $(API:%=--api-server %)

everything:
	@scripts/setup --test
	@$(MAKE) --no-print-directory bpf

build/bpf/%.bpf.o: bpf/%.bpf.c $(wildcard bpf/*.h) Makefile
	@mkdir -p $(@D)
	$(CLANG) $(BPF_FLAGS) -c $< -o $@
	@llvm-strip-19 -g $@

build/bpf/exchange_hash.bpf.o: bpf/exchange.bpf.c

# Whether .venv is up to date, and this checkout's, is decided in scripts/setup alone; it is quick when it is.
environment:
	@scripts/setup
