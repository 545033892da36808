"""What a script answers to words that it does not know: one line, not Hydra's own errors."""

import importlib
import signal
import sys

import pytest

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
