"""What is said once stays said once: the atomic write, the path, the thresholds, the folders."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from engine import CONFIGS, ROOT

FOLDERS = ("datasets", "engine", "losses", "metrics", "models", "scripts", "synthetic")
SOURCES = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]


def holding(pattern: str) -> list[str]:
    return [str(p.relative_to(ROOT)) for p in SOURCES if re.search(pattern, p.read_text())]


@pytest.mark.parametrize(
    ("pattern", "where"),
    [
        (r"noqa: E402", []),
        (r"sys\.path\[0\]", ["scripts/command.py"]),
        (r"\.with_name\(\w+\.name \+ \"\.tmp", ["datasets/io/files.py"]),
        (r"resolve\(\)\.parents\[1\]", ["engine/__init__.py", "scripts/command.py"]),
    ],
)
def test_is_said_in_one_place(pattern: str, where: list[str]):
    assert sorted(holding(pattern)) == where


def test_no_constant_is_typed_twice():
    """Short ones may be equal by chance; a list of joints or a folder is not."""
    places: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and len(text := ast.unparse(node.value)) > 30:
                places[text].add(str(path.relative_to(ROOT)))
    assert not {text: found for text, found in places.items() if len(found) > 1}


def test_a_sweep_is_not_typed_out():
    """Rows of a table that differ in one number are one row with {key, among}."""
    for path in (CONFIGS / "table").glob("*.yaml"):
        alike: dict[tuple, set[str]] = defaultdict(set)
        for row in (OmegaConf.load(path).get("rows") or {}).values():
            said = dict(text.split("=", 1) for text in row.get("overrides") or ())
            for key in said:
                others = sorted((k, v) for k, v in said.items() if k != key)
                alike[row.experiment, key, *others].add(said[key])
        assert not {key: among for key, among in alike.items() if len(among) > 2}, path.name


def test_imports_point_one_way():
    assert not [name for name in holding(r"from scripts") if not name.startswith("scripts/")]


def test_no_script_hides_a_package():
    names = {path.stem for path in (ROOT / "scripts").glob("*.py")}
    assert not names & {*FOLDERS, "tests"}


def test_a_folder_of_data_is_named_once():
    selects = [p for p in CONFIGS.rglob("*.yaml") if "oc.select:paths" in p.read_text()]
    assert not selects


def test_what_is_asked_of_hydra_is_said_once():
    """But for reproduce.py, whose `table` is no group, so that its config has its own folder."""
    saying = [path for path in CONFIGS.rglob("*.yaml") if "output_subdir" in path.read_text()]
    assert sorted(path.stem for path in saying) == ["default", "plain"]


@pytest.mark.parametrize("name", sorted(p.stem for p in (CONFIGS / "benchmark").glob("*.yaml")))
def test_no_source_of_tables_lists_benchmarks(name: str):
    """The report, the figures and the scripts read the benchmark's own file."""
    sources = [*(ROOT / "engine" / "tables").rglob("*.py"), *(ROOT / "scripts").glob("table.py")]
    own = rf'"{name}(_sigma|_gmm)?"'
    assert not [path.name for path in sources if re.search(own, path.read_text())]


def test_presets_do_not_repeat_one_another():
    texts: dict[str, Path] = {}
    for path in sorted((CONFIGS / "preset").rglob("*.yaml")):
        body = "".join(line for line in path.read_text().splitlines(True) if line[0] != "#")
        same = texts.setdefault(f"{path.parent}{body}", path)
        assert same == path, f"{path} says what {same} says"
