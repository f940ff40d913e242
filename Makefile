# Two commands set everything up: `make figures` builds every figure, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REFERENCE := h200 overlap strong_scaling collectives comparability

.PHONY: figures test check mutants measure benchmarks calibration reference archive clean
.DEFAULT_GOAL := figures

figures: $(STAMP)
	@started=$$(date +%s); \
	$(BIN)/snakemake figures/ --quiet rules host && status=0 || status=$$?; \
	$(BIN)/python workflow_scripts/summarise.py --started-s $$started; \
	exit $$status

# Only the runs of this machine, and the figure that shows them.
measure: $(STAMP)
	$(BIN)/snakemake figures/this_machine.pdf

test: $(STAMP)
	$(BIN)/pytest

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

# Each patch of tests/mutations breaks one behaviour of the workflow; its test must turn red.
mutants: $(STAMP)
	$(BIN)/python tests/mutations/run.py

# The trace reader beside HTA and TraceLens: minutes, and 4 GB of disk; TRACELENS is what pip installs for the latter.
# With TORCHTITAN, a clone of it at v0.2.2, on two GPUs also training beside it.
benchmarks: $(STAMP)
	$(BIN)/python -m benchmarks.traces $(if $(TRACELENS),--tracelens $(TRACELENS))
	$(if $(TORCHTITAN),$(BIN)/python -m benchmarks.torchtitan --torchtitan $(TORCHTITAN))
	$(BIN)/python -m benchmarks.perfmodel $(if $(CALCULON),--calculon $(CALCULON))

# Renew the fitted values of the performance model that are shipped; say in CHANGELOG.md why they moved. Those of watts are
# printed beside what is shipped, which power.py states.
calibration: $(STAMP)
	$(BIN)/falloff validate --calibrate
	$(BIN)/falloff validate --power --output results/perfmodel/power.json
	$(BIN)/python workflow_scripts/document_parameters.py

# Renew the reference copies of the figures that do not depend on the machine, and the page of claims and commands, which
# reads the table of every figure; say in CHANGELOG.md why they moved.
reference: figures
	mkdir -p docs/figures
	cp $(REFERENCE:%=figures/%.csv) $(REFERENCE:%=figures/%.png) docs/figures/
	$(BIN)/python workflow_scripts/document_artifact.py

# What an archive of papers' artifacts takes, in dist/: code, logs, tables, figures, environment, checksums, RO-Crate.
# With TAG, at a new tag of that name.
archive: figures
	$(if $(TAG),git tag --annotate $(TAG) --message "falloff $(TAG)")
	$(BIN)/python workflow_scripts/make_archive.py

clean:
	rm -rf results logs .snakemake
	find figures -type f ! -name README.md -delete

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"falloff needs Python 3.11 or newer, $(PYTHON) is {sys.version.split()[0]}; say which: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
