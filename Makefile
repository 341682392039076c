# make bench   the main job on this machine: softmax and gelu at GPT-2 and Llama 3 shapes
# make test    the whole test suite
# make lint    what CI checks besides
# make tables  the README's tables and picture, from the records
# Each makes .venv first where there is none; it says what it downloads.
PYTHON ?= python3
BIN := .venv/bin
QUICK := --quick
# One GPU runs one test at a time.
PARALLEL = $(shell $(BIN)/python -c "import torch, xdist; print('' if torch.cuda.is_available() \
  else '-n auto')" 2>/dev/null)
# Measures what a call costs: nothing runs beside it.
TIMES := tests/test_host_cost.py
CUDA_C := $(shell git ls-files '*.cu' '*.cuh' '*.c')

.PHONY: bench test lint tables clean

bench: .venv/ready
	KW_RECORDS=.cache/records $(BIN)/kernelwright bench softmax gelu $(QUICK) --peers --record \
	  --case gpt-2 --case llama-3
	KW_RECORDS=.cache/records $(BIN)/kernelwright report -o report.html

test: .venv/ready
	$(BIN)/python -m pytest $(TIMES); status=$$?; \
	$(BIN)/python -m pytest $(PARALLEL) --ignore $(TIMES) && exit $$status

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run -Werror $(CUDA_C)
	$(BIN)/codespell src tests tools docs README.md CONTRIBUTING.md
	$(BIN)/python -m kernelwright.workbench.tables --check
	$(BIN)/kernelwright ledger --check

tables: .venv/ready
	$(BIN)/python -m kernelwright.workbench.tables

.venv/ready: pyproject.toml $(wildcard constraints/*.txt) tools/setup_venv.py
	$(PYTHON) tools/setup_venv.py

clean:
	rm -rf .venv report.html
