"""--help lists the choices and settings of a script."""

import re

import pytest

from engine.cli.help import choices, text


@pytest.mark.parametrize("name", ["train", "table"])
def test_help_names_groups_choices_and_settings(name: str):
    shown = text("About it.", name)
    assert shown.startswith("About it.")
    for expected in ("laptop", "imdb_wiki", "seed", "-sc install=bash"):
        assert expected in shown
    assert "defaults" not in shown
    assert "stage2" not in choices("preset", "")  # the parts of a preset are not choices


def test_experiments_have_their_headings():
    assert re.search(r"^imdb_wiki/bmc +BMC: Gaussian x batch", choices("experiment", ""), re.M)
