"""Every command of the README, the docs and the configs composes: its settings exist."""

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from engine import CONFIGS, ROOT
from engine.tables.reproduce import for_runs
from scripts.diagnose import positional
from tests.docs.test_add_a_dataset import PAGE

SHOWN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN += [*sorted(CONFIGS.glob("*.yaml")), CONFIGS / "reproduce/default.yaml"]
NOT_OURS = ("hydra/", "hydra.")  # launchers that are installed on a cluster


def commands() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return (page, script, arguments) of each command; test_add_a_dataset.py runs its page."""
    found = []
    for page in SHOWN:
        text = re.sub(r"\\\n[ #]*", " ", page.read_text())  # continued lines
        for line in re.findall(r"(?:python |#   |: )(scripts/\w+\.py[^`\n]*)", text):
            script, *said = shlex.split(line.split("   ")[0], comments=True)
            said = positional(said) if "diagnose" in script else said
            wanted = tuple(a for a in said if "=" in a and not a.startswith(NOT_OURS))
            wanted = tuple(a for a in wanted if "[experiment=" not in a)  # quoted for a shell
            if page != PAGE or "patients" not in line:
                found.append((page.name, Path(script).stem, wanted))
    return found


def config_of(script: str) -> str:
    """Return the config that a script reads, from its source."""
    return re.findall(r'= command\("([\w/]+)"', (ROOT / "scripts" / f"{script}.py").read_text())[0]


def test_there_are_commands():
    assert len(commands()) > 30


@pytest.mark.parametrize(("page", "script", "said"), commands())
def test_a_command_composes(page: str, script: str, said: tuple[str, ...]):
    path = CONFIGS / config_of(script)
    plain = [a.split(",")[0] if a.startswith(("experiment=", "seed=")) else a for a in said]
    if script == "reproduce":  # as scripts/command.py does
        plain = [f"++{a}" if a.startswith("paths.") else a for a in plain]
    with initialize_config_dir(str(path.parent), version_base="1.3"):
        assert compose(path.name, [a.replace("...", "x") for a in plain])


def test_the_folder_of_a_dataset_has_one_setting():
    for name, more in (("train", "experiment=imdb_wiki/bmc"), ("table", "table=imdb_wiki")):
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            assert compose(name, [more, "paths.imdb_wiki=/x"]).dataset.root == "/x"
    with initialize_config_dir(str(CONFIGS / "reproduce"), version_base="1.3"):
        assert "++paths.imdb_wiki='/x'" in for_runs(compose("default", ["++paths.imdb_wiki=/x"]))
