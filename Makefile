# Two commands set everything up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
TEST_VENV ?= .venv-test
EXTRAS ?= all,record,dev

# What runs in one process, without other people's programs: what coverage is measured with. `.ci/run` holds these to
# `fail_under`, where they run without torch anyway.
CORE_TESTS = tests/unit tests/cli tests/golden tests/cases tests/robustness tests/property
LOOSE_MYPY = $(TEST_VENV)/bin/mypy --config-file= --python-version=3.10 --ignore-missing-imports --follow-imports=silent --explicit-package-bases

.PHONY: demo test test-venv coverage chromium check lint release-check docs site samples clean

demo: $(VENV)/bin/hpuprof
	@for sample in sample_traces/*/; do \
	  case $$sample in */generator/) continue;; esac; \
	  printf '\n== hpuprof analyze %s\n' "$$sample"; \
	  $(VENV)/bin/hpuprof analyze "$$sample" --quiet | sed -n '1,/^$$/p'; \
	done
	@printf '\n== and at length: hpuprof analyze sample_traces/hpu_g3_lazy_8_ranks/\n\n'
	@$(VENV)/bin/hpuprof analyze sample_traces/hpu_g3_lazy_8_ranks/ --quiet

$(VENV)/bin/hpuprof: pyproject.toml setup.py $(shell find hpuprof native -type f -not -name '*.pyc')
	rm -rf build  # setuptools would put what lies there into the wheel, deleted modules too
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check .
	@touch $@

test: test-venv
	$(TEST_VENV)/bin/pytest -n auto --dist loadfile

# A copy is installed, not the checkout, so that a file missing from the wheel fails a test.
test-venv:
	rm -rf build
	$(PYTHON) -m venv $(TEST_VENV)
	$(TEST_VENV)/bin/pip install -q --disable-pip-version-check -c tests/constraints.txt '.[$(EXTRAS)]'

# Lines and branches of the installed package; the last line is the total.
coverage: test-venv
	$(TEST_VENV)/bin/pytest -q -n auto --dist loadfile --cov --cov-report=term:skip-covered $(CORE_TESTS)

# A browser for the tests that open pages (Debian; needs root); without one they are skipped.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || (apt-get update -q && apt-get install -y -q --no-install-recommends chromium)

# Before a commit, in the environment that `make test` made: under a minute, on the checkout as it is.
check: lint
	PYTHONPATH=$(CURDIR) $(TEST_VENV)/bin/pytest -q tests/cases tests/golden

lint:
	$(TEST_VENV)/bin/ruff check .
	$(TEST_VENV)/bin/ruff format --check .
	$(TEST_VENV)/bin/mypy
	MYPYPATH=tests:. $(LOOSE_MYPY) tests/*.py benchmarks/harness
	$(TEST_VENV)/bin/lint-imports
	$(TEST_VENV)/bin/vulture

release-check:
	rm -rf build dist
	$(TEST_VENV)/bin/python -m build --installer uv --outdir dist .
	$(TEST_VENV)/bin/twine check --strict dist/*
	$(TEST_VENV)/bin/check-wheel-contents dist/*.whl
	rm -rf build dist

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
	rm -rf .venv* build dist *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
