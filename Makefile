# make demo: repair a stubborn model.  make test: all tests.  make lint: ruff and mypy.  make bench: the measurements of benchmarks/.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test lint bench clean

demo: $(READY)
	$(BIN)/autofix benchmarks/demo/denoiser.py

test: $(READY)
	$(BIN)/python -m pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/overhead.py

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test,test-s3,lint]'
	touch $@

clean:
	rm -rf .venv build *.egg-info
