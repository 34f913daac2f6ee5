# Everything a developer types. `make demo` and `make test` need Python 3.11 with pip and nothing else;
# `make e2e` also needs Go (or KUBEBUILDER_ASSETS).

SHELL       := bash
.SHELLFLAGS := -e -o pipefail -c

PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
CODE   := src tests examples bench
# the contract of a user's programs stands beside the checkout where the project is developed
CONTRACT := $(wildcard ../shared/contract)

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-versions lint format types contracts e2e parity soak bench bench-micro bench-peers docs constraints controlplane clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "venv: making $(VENV) with $$($(PYTHON) --version); this takes a minute or two"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[trio,cel,controlplane,testing,campaigns,examples,dev]'
	@touch $@

venv: $(VENV)/.ready ## a virtual environment with all extras, quietly when it is there

demo: venv ## the example operator against the embedded API server; SERVE=1 leaves that server up
	@$(BIN)/python examples/webapp/demo.py $(if $(SERVE),--serve)

test: venv ## unit tests, conformance of the in-memory API server, the examples' tests, the contract
	@echo "test: tests, examples$(if $(CONTRACT), and the contract)"
	@$(BIN)/python -m pytest -q -n auto --dist worksteal -m 'not controlplane' tests examples
ifneq ($(CONTRACT),)
	@$(BIN)/python -m pytest -q -p no:cacheprovider $(CONTRACT)
endif

test-versions: ## the same on every Python from 3.12 on that is installed
	@scripts/other-pythons

lint: venv ## ruff and the import contracts
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(MAKE) --no-print-directory contracts

format: venv ## let ruff mend what it can
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

contracts: venv ## who may import whom
	@PYTHONPATH=tests/support $(BIN)/lint-imports --no-cache --config pyproject.toml | sed '/^$$/d'

types: venv ## mypy strict, pyright strict, and the completeness of the public types
	@$(BIN)/mypy src tests
	@$(BIN)/mypy bench/*.py bench/peers/[!c]*.py # cloudcoil is in an environment of its own only
	@for example in examples/*/; do $(BIN)/mypy $$example || exit 1; done
	@$(BIN)/pyright --level error
	@PATH="$(abspath $(BIN)):$$PATH" VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/pyright --ignoreexternal --verifytypes opsdk \
		| scripts/types-complete
ifneq ($(CONTRACT),)
	@cd $(CONTRACT) && $(abspath $(BIN))/mypy --strict --cache-dir $(abspath .mypy_cache)/contract .
	@$(BIN)/python scripts/pyright-strict $(CONTRACT)
endif

controlplane: ## build etcd, kube-apiserver and kube-controller-manager, once per machine
	@test -n "$$KUBEBUILDER_ASSETS$$KUBECONFIG" || tests/controlplane/build.sh >/dev/null

# three workers, each with control planes of its own: the tests wait for servers more than they compute
e2e: venv controlplane ## the same life, and the conformance suite, on a real control plane
	@echo "e2e: against $${KUBECONFIG:-$${KUBEBUILDER_ASSETS:-the control plane built here}}"
	@assets=$${KUBEBUILDER_ASSETS:-$$(tests/controlplane/build.sh --where)}; \
	if [ -x "$$assets/kubectl" ]; then export OPSDK_KUBECTL=$${OPSDK_KUBECTL:-$$assets/kubectl}; fi; \
	OPSDK_CONTROLPLANE_ASSETS=$$assets $(BIN)/python -m pytest -q -n 3 --dist loadfile -m controlplane tests examples

MINUTES ?= 20
SECONDS ?= $(shell echo $$(( $(MINUTES) * 60 )))
REPORT  ?= docs/soak.md
soak: venv controlplane ## 20 minutes (MINUTES=, SECONDS=) of faults around three replicas; the page goes to REPORT=docs/soak.md
	@echo "soak: $(SECONDS) s of faults, after some time to set up"
	@assets=$${KUBEBUILDER_ASSETS:-$$(tests/controlplane/build.sh --where)}; \
	OPSDK_CONTROLPLANE_ASSETS=$$assets PYTHONPATH=tests:tests/support $(BIN)/python -m soak.run \
		--seconds $(SECONDS) --report $(REPORT) $(SOAK)

parity: venv controlplane ## the conformance suite on both API servers, then docs/parity.md from it
	@assets=$${KUBEBUILDER_ASSETS:-$$(tests/controlplane/build.sh --where)}; \
	if [ -x "$$assets/kubectl" ]; then export OPSDK_KUBECTL=$${OPSDK_KUBECTL:-$$assets/kubectl}; fi; \
	OPSDK_CONTROLPLANE_ASSETS=$$assets $(BIN)/python -m pytest -q -n 3 --dist loadfile $$($(BIN)/python scripts/parity --paths)
	@$(BIN)/python scripts/parity

bench: venv controlplane bench-peers ## what the hot paths cost, and operators against their peers; writes docs/benchmarks.md
	@OPSDK_CONTROLPLANE_ASSETS=$${KUBEBUILDER_ASSETS:-$$(tests/controlplane/build.sh --where)} \
		$(BIN)/python bench/run.py --docs $(BENCH)

bench-micro: venv ## single operations against a fixed piece of work: quick, and steady on a busy machine
	@$(BIN)/python bench/run.py micro

bench-peers: ## the operators that opsdk is compared with, once per machine, outside the checkout
	@bench/install-peers.sh >/dev/null

docs: venv ## check that the documentation's code runs, its links lead somewhere, and the parity table is of these tests
	@$(BIN)/python scripts/check-docs
	@$(BIN)/python scripts/parity --check

constraints: venv ## compile constraints.txt anew
	@$(BIN)/pip-compile --quiet --all-extras --strip-extras --allow-unsafe --no-header --annotation-style line \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file constraints.txt pyproject.toml

clean: ## remove what was made here
	@rm -rf $(VENV) .venv-* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist
