"""Arguments that scripts other than train.py refuse; those of train.py: tests/engine/cli."""

from pathlib import Path

import pytest

from tests.faults.bench import Bench, assert_refused

WRONG = {  # script and arguments: a word of the error
    "evaluate run=/etc": "config.yaml",
    "evaluate run=x checkpoint=bst": "best",
    "evaluate run=x split=nope": "test",
    "evaluate run=x batch_size=0": "batch_size",
    "table table=nope": "nope",
    "table table=imdb_wiki seeds=0": "seeds",
    "table table=imdb_wiki jobs=abc": "jobs",
    "table table=imdb_wiki name=../x": "name",
    "table table=imdb_wiki overrides=[nope]": "nope",
    "reproduce data=nope": "mini, real",
    "reproduce data=real table=imdb_wiki paths.data=nowhere": "data",
    "reproduce paths.outputs=''": "paths.outputs",
    "run_synthetic epochs=0": "epochs",
    "run_synthetic folder=''": "folder",
    "prepare_mini draw=[nope]": "bodies, faces, rooms",
    "prepare_mini images=0": "images",
    "prepare_mini draw=[faces] size=1000000": "4096",
    "prepare_age source=imdb_wiki": "root",
    "prepare_age source=nope root=x": "imdb_wiki",
    "prepare_age source=imdb_wiki root=nowhere": "imdb_crop",
    "prepare_age source=imdb_wiki root=x pack=1000000": "4096",
    "report outputs=''": "outputs",
    "diagnose nowhere.csv": "no such file",
    "train experiment=imdb_wiki/gai seed=0,1": "Add --multirun",
    "train experiment=imdb_wiki": "imdb_wiki/bmc, ",
    "train experiment=imdb_wiki/nope": "imdb_wiki/bmc, ",
    "train experiment=imdb_wiki/gai preset=nope": "choose from laptop, official, paper",
    "train experiment=imdb_wiki/gai ~dataset.csv": "Give it a value",
    "table table=imdb_wiki ~seeds": "seeds is missing",
    "train experiment=imdb_wiki/gai name=\u00fc": "quotes",
}


@pytest.mark.parametrize("command", WRONG)
def test_wrong_arguments_are_refused(command: str, bench: Bench):
    assert_refused(bench.run(*command.split()), WRONG[command])
    assert not list(bench.folder.rglob("*.pt"))
    assert not Path("nowhere").exists()
