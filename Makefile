# Every target makes .venv by itself; nothing is reinstalled unless requirements.txt or pyproject.toml changed.
PYTHON ?= python3
RUN := .venv/bin/python

.PHONY: setup reproduce report test browser-test faults lint speed tensorboard clean

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
