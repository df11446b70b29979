# Everything runs in .venv, which the first target that needs it installs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.DEFAULT_GOAL := help
.PHONY: help install backends run report test test-all test-arm64 test-slurm test-versions lint types docs gpu schemas site notebooks clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(STAMP) ## set up .venv (once; 6 GB with torch's CUDA libraries, 2 to 4 minutes)

$(STAMP): pyproject.toml setup.py $(wildcard packages/shift-sort/*.py packages/shift-sort/csrc/*)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "sliceformer_lab needs Python 3.11 or newer; run make PYTHON=python3.12")'
	@echo "setting up .venv: about 3 GB to download, 6 GB on disk, 2 to 4 minutes"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

run: $(STAMP) ## train: make run ARGS="task=cifar10 attention=csp", a table: make run ARGS="study=csp_table1 scale=small"
	$(BIN)/python -m sliceformer_lab $(ARGS)

report: $(STAMP) ## compare finished runs: make report FOLDER=outputs ARGS="by=attention.group_size"
	$(BIN)/python -m sliceformer_lab report $(or $(FOLDER),outputs) $(ARGS)

# A worker takes neighbouring tests, which share fixtures. Without bytecode each process compiles torch again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

test: $(STAMP) ## the tests, without those marked slow (about 10 minutes on two cores)
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(STAMP) ## all tests, before a release (25 minutes)
	$(PYTEST) $(ARGS)

test-arm64: $(STAMP) ## the C++ kernel for 64-bit ARM under qemu (apt-get install g++-aarch64-linux-gnu qemu-user; 1 minute)
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/permute/test_permute_arm64.py $(ARGS)

test-slurm: $(STAMP) ## an array of jobs on a real Slurm of this machine (root on Debian or Ubuntu; 10 minutes)
	SLURM_CONF=$$(tests/slurm/start.sh) LAB_SLURM=1 OMP_NUM_THREADS=1 $(BIN)/pytest tests/slurm $(ARGS)

test-versions: $(STAMP) ## the tests with other libraries: make test-versions VERSIONS=next|oldest ARGS=tests/cli
	tests/versions.sh $(or $(VERSIONS),next) $(ARGS)

notebooks: $(STAMP) ## execute every notebook on digits (1 minute)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -m slow tests/docs/test_notebooks.py $(ARGS)

# The backends of shift_sort on this machine; fails if there is a C++ compiler but no CPU kernel.
backends: $(STAMP) ## list the backends of the operator library on this machine
	@$(BIN)/python -c 'from sliceformer_lab import permute; print("backends:", *permute.available_backends()); \
	[print(f"no {name}: {why}") for name, why in permute.missing_backends().items()]; \
	import shutil, sys; "cpu" in permute.missing_backends() and (shutil.which("c++") or shutil.which("g++")) \
	and sys.exit("there is a C++ compiler, yet the CPU kernel was not built: see pip install --verbose -e .")'

lint: $(STAMP) ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) build/types ## mypy --strict, of the package and of our studies
	$(BIN)/mypy
	$(BIN)/mypy studies

.PHONY: build/types
build/types: # the package as it is installed: links, because mypy and mkdocstrings do not read package_dir
	rm -rf build/types && mkdir -p build/types/sliceformer_lab
	ln -s $(abspath $(wildcard sliceformer_lab/*) tasks callbacks conf) build/types/sliceformer_lab
	ln -s $(abspath packages/shift-sort/shift_sort) build/types/sliceformer_lab/permute

docs: $(STAMP) ## write the tables and figures that follow from committed results (ARGS=claims: those of one study)
	$(BIN)/python studies/write_pages.py $(ARGS)

gpu: $(STAMP) ## do what studies/gpu.md lists on a GPU, in 30 minutes; the same command goes on (ARGS=device=cpu rehearses)
	$(BIN)/python studies/gpu_session.py $(ARGS)

schemas: $(STAMP) ## write build/schemas, with which an editor completes and checks YAML files
	$(BIN)/python studies/option_schemas.py

site: $(STAMP) build/types ## write the site into build/site, without a network; fails at a warning
	$(BIN)/python website/pages.py build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file build/mkdocs.yml

clean: ## remove caches, not .venv and not outputs
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
