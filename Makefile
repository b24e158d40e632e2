# Two commands set everything up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
TEST_VENV ?= .venv-test
EXTRAS ?= all,record,dev

# What runs in one process, without other people's programs: what coverage is measured with, and held to `fail_under`.
CORE_TESTS = tests/unit tests/cli tests/golden tests/cases tests/robustness tests/property
# A file's tests share what they make, so they stay together; tests/conftest.py has the order.
PARALLEL = -n auto --dist loadfile --no-loadscope-reorder
LOOSE_MYPY = $(TEST_VENV)/bin/mypy --config-file= --python-version=3.10 --ignore-missing-imports --follow-imports=silent --explicit-package-bases

.PHONY: demo test evidence test-venv coverage sanitize fuzz chromium check lint wheels release-check docs site notebooks samples clean

demo: $(VENV)/bin/hpuprof
	@for sample in sample_traces/*/; do \
	  case $$sample in */generator/) continue;; esac; \
	  printf '\n== hpuprof analyze %s\n' "$$sample"; \
	  $(VENV)/bin/hpuprof analyze "$$sample" --quiet | sed -n '1,/^$$/p'; \
	done
	@printf '\n== and at length: hpuprof analyze sample_traces/hpu_g3_lazy_8_ranks/ --full\n\n'
	@$(VENV)/bin/hpuprof analyze sample_traces/hpu_g3_lazy_8_ranks/ --full --quiet

$(VENV)/bin/hpuprof: pyproject.toml setup.py $(shell find hpuprof native -type f -not -name '*.pyc')
	rm -rf build  # setuptools would put what lies there into the wheel, deleted modules too
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check .
	@touch $@

test: test-venv
	$(TEST_VENV)/bin/pytest $(PARALLEL)

# What `make test` leaves out: the benchmarks' own worlds and virtual devices at length.
evidence: test-venv
	$(TEST_VENV)/bin/pytest $(PARALLEL) -m evidence

# A copy is installed, not the checkout, so that a file missing from the wheel fails a test.
test-venv:
	rm -rf build
	$(PYTHON) -m venv $(TEST_VENV)
	$(TEST_VENV)/bin/pip install -q --disable-pip-version-check -c tests/constraints.txt '.[$(EXTRAS)]'

# Lines and branches of the installed package; the last line is the total.
coverage: test-venv
	$(TEST_VENV)/bin/pytest -q $(PARALLEL) --cov --cov-report=term:skip-covered $(CORE_TESTS)

# The native part under AddressSanitizer and UndefinedBehaviorSanitizer: its tests, and MUTANTS traces read on both paths.
MUTANTS ?= 3000
SANITIZERS = -fsanitize=address,undefined -fno-sanitize-recover=all
SANITIZED = LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
  PYTHONMALLOC=malloc PYTHONPATH=build/sanitize HPUPROF_NATIVE=require HPUPROF_TESTS_REQUIRE=native $(TEST_VENV)/bin

# What builds a sanitized program of its own, what runs without the native part, and the traces of others: much of the same.
WITHOUT = $(addprefix --deselect=tests/,robustness/test_scan_paths.py::test_nothing_is_read_or_written_past_an_end \
  unit/what_if/test_native.py::test_the_package_works_without_it robustness/test_scan_paths.py::test_traces_of_other_people)

sanitize:
	rm -rf build/sanitize
	mkdir -p build/sanitize
	cp -r hpuprof build/sanitize && rm -f build/sanitize/hpuprof/*.so
	CXX=g++ CFLAGS="$(SANITIZERS)" CXXFLAGS="$(SANITIZERS)" LDFLAGS="$(SANITIZERS)" $(TEST_VENV)/bin/python setup.py -q build_ext \
	  --build-temp build/sanitize/temp --build-lib build/sanitize
	grep -q __asan_report build/sanitize/hpuprof/_native*.so
	$(SANITIZED)/pytest -q -p no:cacheprovider $(WITHOUT) tests/unit/what_if/test_native.py \
	  tests/unit/test_native_rows.py tests/robustness/test_scan_paths.py tests/robustness/test_colliding_names.py
	$(SANITIZED)/python tests/scan_paths.py --count $(MUTANTS) --keep build/sanitize/found

# The scanner alone, from its corpus on: libFuzzer for FUZZ_S seconds where clang is, else the corpus and changes of it.
FUZZ_S ?= 60
CLANG ?= $(firstword $(notdir $(wildcard /usr/bin/clang++ /usr/bin/clang++-*)))

fuzz:
	rm -rf build/fuzz
	mkdir -p build/fuzz
	$(PYTHON) -m zipfile -e tests/robustness/scanner_corpus.zip build/fuzz/corpus
	$(or $(CLANG),g++) -std=c++17 -g -O1 $(SANITIZERS) $(if $(CLANG),-fsanitize=fuzzer -DLIBFUZZER) -Inative \
	  tests/robustness/check_scanner.cpp native/row_scanner.cpp -o build/fuzz/scanner
	cd build/fuzz && ./scanner $(if $(CLANG),-max_len=2000 -max_total_time=$(FUZZ_S) -print_final_stats=1 corpus,corpus/*)

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

# For Linux x86_64 and aarch64, in dist: needs Docker or Podman, and qemu-user-static with binfmt for the other architecture.
wheels:
	rm -rf build
	$(TEST_VENV)/bin/uv tool run cibuildwheel --platform linux --output-dir dist

# The wheel is built from the source distribution, elsewhere; both stay in dist.
release-check:
	rm -rf dist
	$(TEST_VENV)/bin/python -m build --installer uv --outdir dist .
	$(TEST_VENV)/bin/twine check --strict dist/*
	$(TEST_VENV)/bin/check-wheel-contents dist/*.whl

# The documents as a site, in build/site.
site:
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/pip install -q --disable-pip-version-check '.[site]'
	.venv-site/bin/sphinx-build -q -W --keep-going -b html docs build/site

docs:
	$(TEST_VENV)/bin/python docs/generate.py

# The notebooks with what they show, pictures included.
notebooks:
	$(TEST_VENV)/bin/python notebooks/run.py

samples:
	$(PYTHON) sample_traces/generate.py

clean:
	rm -rf .venv* build dist *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
