# Every target makes .venv by itself; nothing is reinstalled unless requirements.txt or pyproject.toml changed.
PYTHON ?= python3
RUN := .venv/bin/python

.PHONY: setup reproduce report test test-minimum browser-test faults lint docs speed tensorboard clean

setup: .venv/installed

.venv/installed: requirements.txt pyproject.toml
	test -x $(RUN) || $(PYTHON) -m venv .venv
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

reproduce: setup
	$(RUN) scripts/reproduce.py

report: setup
	$(RUN) scripts/report.py

test: setup
	OMP_NUM_THREADS=1 $(RUN) -m pytest --numprocesses 2 --dist worksteal

# The package with the oldest versions that pyproject.toml declares. Torch 2.6 has no fake GPU.
MINIMUM := outputs/minimum/bin/python
test-minimum:
	test -x $(MINIMUM) || $(PYTHON) -m venv outputs/minimum
	$(MINIMUM) -m pip install --quiet --disable-pip-version-check uv
	$(MINIMUM) -m uv pip install --quiet --resolution lowest-direct --editable ".[metrics,boosting]" \
		$$(grep -E '^(pytest|hypothesis)==' requirements.txt) "hydra-core>=1.3.2" \
		"opencv-python-headless>=4.10.0.84" "pandas>=2.2.2" "matplotlib>=3.9"
	OMP_NUM_THREADS=1 $(MINIMUM) -m pytest tests/losses tests/metrics -W default \
		--ignore tests/losses/fast --ignore tests/losses/calls/test_fake.py

docs:
	test -x outputs/docs/bin/python || $(PYTHON) -m venv outputs/docs
	outputs/docs/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	outputs/docs/bin/python -m mkdocs build

browser-test: setup
	$(RUN) -m pytest tests/browser -rs

faults: setup
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m faults --numprocesses 2

lint: setup
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pyright

speed: setup
	$(RUN) scripts/speed.py

tensorboard: setup
	$(RUN) -m tensorboard.main --logdir outputs

clean:
	rm -rf .venv outputs
