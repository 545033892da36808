"""--help lists what can be chosen and set, and a missing choice is named."""

import re
import sys

import pytest

from engine.cli.help import choices, help_if_wanted, text


@pytest.mark.parametrize("name", ["train", "table"])
def test_help_names_groups_choices_and_settings(name: str):
    shown = text("What it does.", name)
    assert shown.startswith("What it does.")
    for expected in ("laptop", "imdb_wiki", "seed", "-sc install=bash"):
        assert expected in shown
    assert "defaults" not in shown
    assert "second" not in choices("preset", "")  # the parts of a preset are not choices


def test_experiments_have_their_headings():
    assert re.search(r"^imdb_wiki/bmc +BMC: Gaussian x batch", choices("experiment", ""), re.M)


def test_help_ends_the_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(sys, "argv", ["scripts/train.py", "--help"])
    with pytest.raises(SystemExit) as end:
        help_if_wanted("What it does.", "train")
    assert end.value.code == 0
    assert "experiment" in capsys.readouterr().out


def test_a_missing_choice_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["scripts/train.py", "preset=laptop"])
    with pytest.raises(SystemExit, match=r"experiment=<choice> is missing; choose out of:"):
        help_if_wanted("", "train")
    monkeypatch.setattr(sys, "argv", ["scripts/train.py", "experiment=imdb_wiki/bmc"])
    help_if_wanted("", "train")
