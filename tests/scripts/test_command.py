"""Errors of the scripts: one paragraph, an exit code, and every failed job of a sweep."""

import errno
import importlib
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from engine import ROOT
from engine.cli.errors import paragraph
from engine.cli.help import choices
from scripts import command


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch):
    """Run a script's main with a command line; return its exit code."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    handler = signal.getsignal(signal.SIGTERM)

    def run(script: str, *words: str) -> int | str | None:
        monkeypatch.setattr(sys, "argv", [f"scripts/{script}.py", *words])
        with pytest.raises(SystemExit) as end:
            importlib.import_module(f"scripts.{script}").main()
        return end.value.code

    yield run
    signal.signal(signal.SIGTERM, handler)


WRONG = {  # script and arguments: a part of the message
    "train BMC trainer.epoch=3": "Did you mean trainer.epochs?",
    "train BMC optim.lr=1": "Did you mean optim.optimizer.lr?",
    "train BMC lr=1": "Did you mean optim.optimizer.lr?",
    "train BMC loss.sigma=3": "Did you mean loss.likelihood.sigma?",
    "train BMC model.outputs=2": "model.outputs: there is no such setting. (",
    "train BMC path.outputs=x": "Did you mean paths.outputs?",
    "train BMC regularizer=ranksim": "+regularizer=<choice>",
    "train BMC loss/prior=nope": "loss/prior=nope: no such choice; choose from batch, bi",
    "train BMC preset=nope": "preset=nope: no such choice; choose from laptop, official, paper",
    "train BMC hydra/launcher=nope": "no such choice; choose from basic",
    "train experiment=imdb_wiki/bmcc": "Did you mean imdb_wiki/bmc?",
    "train experiment=imdb_wiki": "imdb_wiki/bmc, ",
    "train BMC seed=-1": "seed: expected a whole number >= 0; got -1",
    "train BMC seed=0,1": "add --multirun",
    "train BMC dataset=null": "takes the name of a choice and not null",
    "train experiment=imdb_wiki/vanilla loss/prior=gaussian_mixture": "add +components=<value>",
    "train BMC ~dataset.csv": "Give it a value",
    "train BMC name=\u00fc": "quotes",
    "train BMC features=cached freeze_bn=false": "frozen batch-norm; got backbone={",
    "train experiment=imdb_wiki/vanilla features=cached": "got backbone=None, freeze_bn=True.",
    "table table=nope": "nope",
    "table table=ihmr dataset.onli=[coco]": "dataset.onli",
    "table AGES sedes=3": "Did you mean seeds?",
    "table AGES seeds=0": "seeds: expected a whole number >= 1; got 0",
    "table AGES name=../x": "name",
    "table AGES overrides=[nope]": "nope",
    "table AGES ~table.rows.RRT+LSD": "unknown RRT+LSD; choose from Vanilla, RRT",
    "table AGES add={BMC:imdb_wiki/bmc}": "add: the table has a row BMC already",
    "table AGES add={Mine:imdb_wiki/mine}": "imdb_wiki/mine: no such choice",
    "table AGES add={Mine:{experiment:imdb_wiki/bmc,override:[a]}}": "add.Mine: unknown override",
    "table AGES add=[imdb_wiki/bmc]": "add: expected a ",
    "table AGES rows=[Vanilla,Mine]": "rows: unknown Mine",
    "table AGES rows=[Vanilla] without=[Vanilla]": "No row is left",
    "table AGES rows=Vanilla": "rows: expected a ",
    "table AGES rows=[]": "rows: expected a ",
    "table AGES table.columns=[bmae,bmae_fw]": "unknown metric 'bmae_fw'",
    "leaderboard benchmarks=[nope]": "benchmarks: unknown nope; choose from stsb",
    "leaderboard regularizers=[conr]": "regularizers: unknown conr; choose from ranksim",
    "leaderboard losses=[MSE]": "losses: unknown MSE; choose from Plain",
    "leaderboard settings=0": "settings: expected a whole number >= 1",
    "reproduce table=nonsense": "table: unknown nonsense; choose from all, synthetic",
    "reproduce paths.imdb=/x": "paths: unknown imdb; choose from agedb, ",
    "reproduce tables=imdb_wiki": "tables",
    "reproduce data=nope": "mini, real",
    "evaluate run=/etc": "config.yaml",
    "evaluate run=x splits=val": "splits",
    "evaluate run=x split=tset": "Did you mean test?",
    "run_synthetic seeds=0": "seeds",
    "run_synthetic folder=''": "folder",
    "prepare_mini draw=[nope]": "bodies, faces, rooms",
    "prepare_mini draw=[faces] size=1000000": "4096",
    "prepare_smpl": "Give SMPL's pickles: files.neutral=..., files.male=",
    "prepare_age source=imdb_wiki": "root must be given, e.g. root=...",
    "prepare_age source=nope root=x": "imdb_wiki",
    "prepare_age source=csv root=x csv=no.csv": "no.csv: no such CSV; csv= takes the path",
    "prepare_age source=imdb_wiki root=nowhere": "imdb_crop",
    "report own=perhaps": "own",
    "runs diff=[x]": "of two runs",
    "runs outputs=nowhere": "nowhere: no such folder",
    "speed rounds=0": "rounds",
    "diagnose nowhere.csv": "no such file",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments_get_one_line(line: str, start, capsys):
    words = line.replace("BMC ", "experiment=imdb_wiki/bmc ").replace("AGES", "table=imdb_wiki")
    assert start(*words.split()) == 1
    printed = capsys.readouterr().err.strip()
    assert WRONG[line] in printed
    assert len(printed.splitlines()) == 1 or "--multirun" in WRONG[line]  # several ways to mean it
    assert not {"Traceback", "struct", "Error"} & set(printed.replace(":", " ").split())
    assert not Path("nowhere").exists()


def test_a_missing_choice_lists_the_choices(start, capsys):
    assert start("train", "preset=laptop") == 1
    expected = r"(?s)experiment=<choice> is missing; choose from:.*imdb_wiki/bmc "
    assert re.search(expected, capsys.readouterr().err)


@pytest.mark.parametrize("script", ["train", "table"])
def test_help_names_groups_choices_and_settings(script: str, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"scripts/{script}.py", "--help"])
    assert importlib.import_module(f"scripts.{script}").main() is None
    shown = capsys.readouterr().out
    for expected in ("laptop", "imdb_wiki", "seed", "-sc install=bash"):
        assert expected in shown
    assert "defaults" not in shown
    if script == "train":
        assert re.search(r"^ *imdb_wiki/bmc +BMC: Gaussian x batch", shown, re.M)
    assert "stage2" not in choices("preset", "")  # the parts of a preset are not choices


def test_scripts_import_nothing_slow_before_their_settings_are_checked():
    names = [path.stem for path in (ROOT / "scripts").glob("*.py")]
    slow = {"hydra", "torch", "numpy", "matplotlib", "lightning_fabric", "sklearn", "pandas"}
    code = f"import sys, {', '.join(names)}; print(sorted({slow} & set(sys.modules)))"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT / "scripts", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_interrupted_script_can_be_resumed(start, monkeypatch, capsys):
    def interrupted(cfg) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("engine.runs.run.run", interrupted)
    assert start("train", "experiment=imdb_wiki/bmc") == 130
    expected = "Interrupted. Run the same command again to resume.\n"
    assert capsys.readouterr().err == expected


def test_every_failed_job_of_a_sweep_is_reported(start, tmp_path: Path, capsys):
    words = ("experiment=imdb_wiki/bmc", "--multirun", f"paths.outputs={tmp_path}")
    assert start("train", *words, "seed=-1,-2") == 1
    printed = capsys.readouterr().err
    assert "got -1" in printed
    assert "got -2" in printed
    assert os.environ["PYTHONPATH"].startswith(str(Path(command.__file__).parent))


def test_failures_of_other_processes_are_recorded_when_they_arrive(monkeypatch):
    """Hydra raises the first only, though the results of all jobs have arrived by then."""
    sent = [pickle.dumps(command.JobFailed(text)) for text in ("first", "second")]
    monkeypatch.setattr(command, "failures", [])
    assert [str(pickle.loads(one)) for one in sent] == command.failures == ["first", "second"]


def test_a_batch_of_one_gets_advice():
    with pytest.raises(ValueError, match="more than 1 value") as raised:
        nn.BatchNorm1d(2)(torch.zeros(1, 2))
    assert "Raise trainer.batch_size" in paragraph(raised.value)


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EROFS, "permissions"), (errno.ENOTDIR, "move"), (errno.ELOOP, "leads back")],
)
def test_errors_of_the_operating_system_name_the_file_and_give_advice(number: int, advice: str):
    printed = paragraph(OSError(number, os.strerror(number), "some/file"))
    assert printed.startswith(f"some/file: {os.strerror(number)}.")
    assert advice in printed
