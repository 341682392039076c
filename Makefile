# make bench   the main job on this machine: softmax and gelu at GPT-2 and Llama 3 shapes
# make test    every rung, check and wrong kernel, in minutes; tests/support/cover.py says what it leaves out
# make test-all [SHARE=2/7]  every test, or a part of them
# make test-oldest  what PyTorch decides (binding, compile, export, patch, optimizer) on the oldest torch
# make lint    what CI checks besides
# make site    the documentation as a website, in site/
# make tables  the README's tables and pictures, from the records and the emulator, and the hashes
#              that ship
# Each makes .venv first where there is none; it says what it downloads.
PYTHON ?= python3
BIN := .venv/bin
QUICK := --quick
PYTEST = $(BIN)/python -m pytest $(shell $(BIN)/python -c \
  "import xdist; print('-n auto --dist worksteal')" 2>/dev/null)
CUDA_C := $(shell git ls-files '*.cu' '*.cuh' '*.c')

# The oldest tested set, in a virtual environment of its own that later runs find again.
OLDEST = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kernelwright/venv-oldest-$(shell cat pyproject.toml \
  constraints/common.txt constraints/oldest.txt | sha256sum | cut -c1-12)
OF_PYTORCH := $(addprefix tests/dispatch/test_,binding.py calls.py compiled.py) tests/optim \
  $(addprefix tests/integrations/transformers/test_,patch.py patch_compiled.py)

.PHONY: bench test test-all test-oldest lint site tables clean

bench: .venv/ready
	KW_RECORDS=.cache/records $(BIN)/kernelwright bench softmax gelu $(QUICK) --peers --record \
	  --case gpt-2 --case llama-3 --html report.html

test: .venv/ready
	$(PYTEST)

test-all: .venv/ready
	$(PYTEST) --all $(addprefix --share ,$(SHARE))

test-oldest:
	test -e $(OLDEST)/ready || $(PYTHON) tools/setup_venv.py --set oldest --into $(OLDEST) test
	PYTHONPATH=$(CURDIR)/src $(OLDEST)/bin/python -m pytest -n auto --dist worksteal \
	  $(OF_PYTORCH)

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run -Werror $(CUDA_C)
	$(BIN)/codespell src tests tools benchmarks docs README.md CONTRIBUTING.md
	$(BIN)/python -m tools.movement --check
	$(BIN)/python -m tools.lessons --check
	$(BIN)/python -m tools.readme_tables --check
	$(BIN)/python -m tools.teaching --check
	$(BIN)/kernelwright ledger --check

site: .venv/docs
	$(BIN)/python -m tools.site

tables: .venv/ready
	$(BIN)/python -m tools.movement
	$(BIN)/python -m tools.lessons
	$(BIN)/python -m tools.readme_tables
	$(BIN)/python -m tools.teaching
	$(BIN)/python -m tools.translations --write

.venv/ready: pyproject.toml $(wildcard constraints/*.txt) tools/setup_venv.py
	$(PYTHON) tools/setup_venv.py

.venv/docs: .venv/ready
	$(BIN)/python -m pip install -q "sphinx>=8.1" "furo>=2024.8" "myst-parser>=4" "latex2mathml>=3.77"
	touch $@

clean:
	rm -rf .venv report.html site
