"""How a script tells what went wrong: one line for words that it does not know, not Hydra's own
errors; every job of a sweep that failed."""

import errno
import importlib
import os
import pickle
import signal
import sys
from pathlib import Path

import pytest

from engine.cli.errors import paragraph
from scripts import command

WRONG = [
    ("train", ["experiment=imdb_wiki/bmc", "trainer.epoch=3"], "did you mean trainer.epochs?"),
    ("train", ["experiment=imdb_wiki/bmcc"], "imdb_wiki/bmcc"),
    ("table", ["table=ihmr", "dataset.onli=[coco]"], "dataset.onli"),
    ("reproduce", ["tables=imdb_wiki"], "tables"),
    ("evaluate", ["run=x", "splits=val"], "splits"),
]


@pytest.mark.parametrize(("script", "said", "answer"), WRONG)
def test_an_unknown_word_gets_one_line(
    script: str,
    said: list[str],
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setattr(sys, "argv", [f"scripts/{script}.py", *said])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            importlib.import_module(f"scripts.{script}").main()
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert end.value.code == 1
    told = capsys.readouterr().err.strip()
    assert answer in told
    assert len(told.splitlines()) == 1
    assert not {"Traceback", "struct", "Error"} & set(told.replace(":", " ").split())


def test_failures_of_other_processes_are_noted_where_they_arrive(monkeypatch: pytest.MonkeyPatch):
    """Hydra raises the first only, though all jobs' results have arrived by then."""
    monkeypatch.setattr(command, "arrived", [])
    sent = [pickle.dumps(command.JobFailed(text)) for text in ("first", "second")]
    assert command.arrived == []
    errors = [pickle.loads(one) for one in sent]
    assert command.arrived == ["first", "second"]
    assert [str(error) for error in errors] == command.arrived


def test_a_launchers_process_finds_the_scripts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setattr(sys, "argv", ["train.py", "--multirun", "experiment=imdb_wiki/gai"])
    monkeypatch.setattr(command, "guarded", lambda start: None)
    command.command("train")(lambda cfg: None)()
    folders = os.environ["PYTHONPATH"].split(os.pathsep)
    assert folders == [str(Path(command.__file__).parent), command.ROOT, "/mine"]


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EROFS, "permissions"), (errno.ENOTDIR, "move"), (errno.ELOOP, "leads back")],
)
def test_what_the_system_says_of_a_file_is_told_with_its_name_and_advice(number: int, advice: str):
    told = paragraph(OSError(number, os.strerror(number), "some/file"))
    assert told.startswith(f"some/file: {os.strerror(number)}.")
    assert advice in told
