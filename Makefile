# Two commands set everything up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
TEST_VENV ?= .venv-test
EXTRAS ?= all,record,dev

.PHONY: demo test chromium check docs site samples clean

demo: $(VENV)/bin/hpuprof
	@for sample in sample_traces/*/; do \
	  case $$sample in */generator/) continue;; esac; \
	  printf '\n== hpuprof analyze %s\n' "$$sample"; \
	  $(VENV)/bin/hpuprof analyze "$$sample" --quiet | sed -n '1,/^$$/p'; \
	done
	@printf '\n== and at length: hpuprof analyze sample_traces/hpu_g3_lazy_8_ranks/\n\n'
	@$(VENV)/bin/hpuprof analyze sample_traces/hpu_g3_lazy_8_ranks/ --quiet

$(VENV)/bin/hpuprof: pyproject.toml $(shell find hpuprof -type f -not -name '*.pyc')
	rm -rf build  # setuptools would put what lies there into the wheel, deleted modules too
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check .
	@touch $@

# A copy is installed, not the checkout, so that a file missing from the wheel fails a test.
test:
	rm -rf build
	$(PYTHON) -m venv $(TEST_VENV)
	$(TEST_VENV)/bin/pip install -q --disable-pip-version-check -c tests/constraints.txt '.[$(EXTRAS)]'
	$(TEST_VENV)/bin/pytest -n auto --dist loadfile

# A browser for tests/tab (Debian; needs root); without one those tests are skipped.
chromium:
	@command -v chromium >/dev/null || (apt-get update -q && apt-get install -y -q --no-install-recommends chromium)

check:
	$(TEST_VENV)/bin/ruff check .
	$(TEST_VENV)/bin/ruff format --check .
	$(TEST_VENV)/bin/mypy
	$(TEST_VENV)/bin/lint-imports

# The documents as a site, in build/site.
site:
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/pip install -q --disable-pip-version-check '.[site]'
	.venv-site/bin/sphinx-build -q -W --keep-going -b html docs build/site

docs:
	$(TEST_VENV)/bin/python docs/generate.py

samples:
	$(PYTHON) sample_traces/generate.py

clean:
	rm -rf .venv* build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
