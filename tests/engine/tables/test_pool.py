"""Tasks in processes of their own."""

import os
from collections.abc import Callable

import pytest

from engine.tables.pool import side_by_side
from tests.engine import tiny_tasks


def test_results_reports_and_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    told: list = []
    tasks: list[Callable] = [tiny_tasks.threads, tiny_tasks.threads]
    results = side_by_side(tasks, 2, lambda i, what: told.append((i, what)))
    assert results == [("1", 1)] * 2  # of NumPy and of torch
    for i in range(2):
        assert [what for task, what in told if task == i] == ["begun", None]
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_an_error_in_a_task_is_raised():
    with pytest.raises(ValueError, match="of a task"):
        side_by_side([tiny_tasks.fail], 1, lambda i, what: None)
