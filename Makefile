# `make run` and `make test` need only Python 3.11 or newer; all packages go into .venv.

PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
BIN := .venv/bin
SECONDS ?= 600
EXAMPLES ?= 5000
# Two more than the number of cores, because many tests wait for child processes.
TESTERS ?= $(shell expr $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 2)

.PHONY: help run demo test check chaos soak bench format translations snapshot deploy-tools sbom lock clean

help:
	@echo 'make run     show all applications with sample data in the browser: videos, articles, documents, GPU jobs, stories (no key, no Docker)'
	@echo 'make demo    run a pipeline whose worker is killed, and watch it resume'
	@echo 'make test    run make check, then every test'
	@echo 'make check   check lint, formatting, types, layers and the requirements ledger'
	@echo 'make chaos   kill, stall and disconnect at random for SECONDS=600, with a checker outside the database'
	@echo 'make soak    test the engine against its model with EXAMPLES=5000 random histories'
	@echo 'make bench   measure speed, alongside other engines in the same run'
	@echo 'make format  format the code'
	@echo 'make translations  add new strings to the gettext catalogues and drop unused ones'
	@echo 'make snapshot  write the database of a new release, which later releases are tested to upgrade'
	@echo 'make deploy-tools  install the programs that check the files in deploy/ (100 MB), for the tests'
	@echo 'make sbom    list the dependencies of a release in dist/retoma.cdx.json (CycloneDX)'
	@echo 'make lock    resolve requirements/*.txt again'

run: .venv/run.stamp
	@exec $(BIN)/retoma dev retoma_apps.samples --demo

demo: .venv/run.stamp
	@exec $(BIN)/retoma dev --demo

test: check
	$(BIN)/python -m compileall -q src standins tests bench
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal

check: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/requirements_ledger.py

chaos: .venv/dev.stamp
	$(BIN)/python -m bench.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

soak: .venv/dev.stamp
	MODEL_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/model

bench: .venv/dev.stamp
	$(BIN)/python -m bench

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

translations: .venv/dev.stamp
	$(BIN)/python tools/translations.py
	$(BIN)/python tools/plugin_translations.py

snapshot: .venv/dev.stamp
	$(BIN)/python -m tools.release_snapshot

deploy-tools: .venv/deploy.stamp

sbom: .venv/dev.stamp .venv/deploy.stamp
	@mkdir -p dist
	$(BIN)/python tools/sbom.py dist/retoma.cdx.json

lock: .venv/dev.stamp
	$(BIN)/python -m pip install --quiet uv==0.13.7
	for set in run:build dev:dev; do $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-header pyproject.toml --extra media --extra classifier --extra oidc --extra tracing --group $${set#*:} -o requirements/$${set%:*}.txt; done
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
		--constraint requirements/dev.txt --group deploy -o requirements/deploy.txt

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

.venv/deploy.stamp: .venv/dev.stamp

.venv/%.stamp: requirements/%.txt pyproject.toml
	@test -n '$(PYTHON)' || { echo 'Retoma needs Python 3.11 or newer: install it, or say where it is with make PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo 'Python has no venv: on Debian or Ubuntu, apt-get install python3-venv' >&2; exit 1; }
	@echo 'Installing into .venv (once)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@# For `make run`, Python compiles what it imports: compiling everything takes longer than the rest of the installation.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(filter run,$*),--no-compile) --require-hashes -r $<
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
