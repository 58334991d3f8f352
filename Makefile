# What a person and CI run. `make help` lists the targets.
#
# Every target sets up what it needs: a virtual environment in .venv, and the few Debian packages
# that Python's own package index cannot bring (as root, or with sudo).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-peers lint format types golden bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMPS)/test ## set up .venv and the system packages it lacks

demo: $(STAMPS)/base ## compile and run the seed operators, and say what was checked
	$(BIN)/python examples/demo.py

test: $(STAMPS)/test ## run the whole suite
	$(BIN)/python -m pytest -n auto --cov=dmlc --cov-report=term:skip-covered --cov-fail-under=90 tests \
		--ignore=tests/peers

test-peers: $(STAMPS)/peers ## compare with PyTorch (installs it: a large download)
	$(BIN)/python -m pytest tests/peers

lint: $(STAMPS)/dev ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMPS)/dev ## mend style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMPS)/dev ## check types, strictly
	$(BIN)/pyright

golden: $(STAMPS)/test ## write the golden files anew; review the difference before committing
	$(BIN)/python -m pytest tests/codegen --update-golden

bench: $(STAMPS)/test ## measure speed against the machine's own limit
	$(BIN)/python -m benchmarks

docs: $(STAMPS)/base ## write what the documentation takes from the program anew
	$(BIN)/python docs/build.py

clean: ## remove what the targets made
	rm -rf $(VENV) out build dist .pytest_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What is missing is installed once per change of pyproject.toml.

$(STAMPS)/system:
	@set -e; \
	missing=""; \
	ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 || missing="$$missing pocl-opencl-icd"; \
	$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || missing="$$missing python3-venv"; \
	ls /usr/share/vulkan/icd.d/*.json >/dev/null 2>&1 || missing="$$missing libvulkan1 mesa-vulkan-drivers"; \
	ls /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json >/dev/null 2>&1 \
		|| missing="$$missing vulkan-validationlayers"; \
	command -v spirv-val >/dev/null || missing="$$missing spirv-tools"; \
	if [ -n "$$missing" ]; then \
		command -v apt-get >/dev/null || { echo "please install:$$missing" >&2; exit 1; }; \
		echo "installing$$missing"; \
		export DEBIAN_FRONTEND=noninteractive; \
		$(SUDO) apt-get update -qq; \
		$(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dmlc needs Python 3.11 or newer")'
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/base: $(STAMPS)/system pyproject.toml
	@echo "installing dmlc into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@$(BIN)/python -m compileall -q dmlc
	@touch $@

$(STAMPS)/test: $(STAMPS)/base
	@echo "installing what the tests need"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@

$(STAMPS)/dev: $(STAMPS)/test
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test,dev]'
	@touch $@

$(STAMPS)/peers: $(STAMPS)/test
	@echo "installing PyTorch"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test,peers]'
	@touch $@
