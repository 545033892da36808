"""Folders import in one direction, files are short, and constants are defined once."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from engine import CONFIGS, ROOT

NOUNS = ("datasets", "losses", "metrics", "models")
FOLDERS = (*NOUNS, "engine", "scripts", "synthetic")
SOURCES = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
SETTINGS = {"hydra", "omegaconf", "argparse"}
MAY_IMPORT = {
    **{noun: set[str]() for noun in NOUNS},
    "synthetic": set(NOUNS),
    "engine": {*NOUNS, "synthetic", *SETTINGS},
    "scripts": {*NOUNS, "synthetic", "engine", *SETTINGS},
}
EXCEPTIONS = {  # (file, folder): reason
    ("datasets/tabular.py", "metrics"): "reads CSV files as the installed evaluate command does",
    ("models/smpl.py", "datasets"): "reads body models through datasets.io.arrays",
}

LARGE = {  # larger than 250 lines or 12 files
    "scripts",  # one entry point per command
    *("tests/losses/search.py", "tests/losses/test_estimator.py"),
    *("tests/losses/posthoc/test_posthoc.py", "tests/losses/boosting/test_boosting.py"),
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level packages that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).split(".")[0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_one_way(folder: str):
    known = {*FOLDERS, "tests", *SETTINGS}
    wrong = {
        (name(path), package)
        for path in (ROOT / folder).rglob("*.py")
        for package in set(imported(path)) & known - MAY_IMPORT[folder] - {folder}
    }
    assert wrong - EXCEPTIONS.keys() == set()


def test_exceptions_are_needed():
    assert all(package in imported(ROOT / path) for path, package in EXCEPTIONS)


@pytest.mark.parametrize("folder", [*FOLDERS, "tests"])
def test_files_are_short_and_folders_small(folder: str):
    paths = list((ROOT / folder).rglob("*.py"))
    lengths = {name(path): len(path.read_text().splitlines()) for path in paths}
    assert {path for path, length in lengths.items() if length > 250} <= LARGE
    counts = Counter(name(path.parent) for path in paths)
    assert {path for path, count in counts.items() if count > 12} <= LARGE


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_start_with_a_verb_or_a_noun(folder: str):
    paths = {name(path): path for path in (ROOT / folder).rglob("*.py")}
    found = {path for path in paths if '"""What ' in paths[path].read_text()}
    assert not found


def holding(pattern: str) -> list[str]:
    return sorted(name(path) for path in SOURCES if re.search(pattern, path.read_text()))


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        (r"noqa: E402", []),
        (r"sys\.path\[0\]", ["scripts/command.py"]),
        # losses are installed without datasets
        (r"token_hex\(", ["datasets/io/files.py", "losses/mixture.py"]),
        (r"resolve\(\)\.parents\[1\]", ["engine/__init__.py", "scripts/command.py"]),
    ],
)
def test_is_written_once(pattern: str, files: list[str]):
    assert holding(pattern) == files


def test_no_constant_is_defined_twice():
    """Short ones may be equal by chance; a list of joints or a folder is not."""
    files: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and len(text := ast.unparse(node.value)) > 30:
                files[text].add(name(path))
    assert not {text: found for text, found in files.items() if len(found) > 1}


def test_a_sweep_is_one_row():
    """Rows of a table that differ in one number are one row with {key, among}."""
    for path in (CONFIGS / "table").glob("*.yaml"):
        values: dict[tuple, set[str]] = defaultdict(set)
        for row in (OmegaConf.load(path).get("rows") or {}).values():
            overrides = dict(text.split("=", 1) for text in row.get("overrides") or ())
            for key in overrides:
                others = sorted((k, v) for k, v in overrides.items() if k != key)
                values[row.experiment, key, *others].add(overrides[key])
        assert not {key: among for key, among in values.items() if len(among) > 2}, path.name


def test_no_script_hides_a_package():
    names = {path.stem for path in (ROOT / "scripts").glob("*.py")}
    assert not names & {*FOLDERS, "tests"}


def test_paths_and_settings_of_hydra_are_written_once():
    """Except for reproduce.py, whose `table` is no group, so that its config has its own folder."""
    texts = [(path.stem, path.read_text()) for path in CONFIGS.rglob("*.yaml")]
    assert not [stem for stem, text in texts if "oc.select:paths" in text]
    found = sorted(stem for stem, text in texts if "output_subdir" in text)
    assert found == ["default", "plain"]


@pytest.mark.parametrize(
    "benchmark", sorted(p.stem for p in (CONFIGS / "benchmark").glob("*.yaml"))
)
def test_tables_do_not_list_benchmarks(benchmark: str):
    """The report, the figures and the scripts read the benchmark's config."""
    sources = [*(ROOT / "engine" / "tables").rglob("*.py"), *(ROOT / "scripts").glob("table.py")]
    own = rf'"{benchmark}(_sigma|_gmm)?"'
    assert not [path.name for path in sources if re.search(own, path.read_text())]


def test_presets_do_not_repeat_one_another():
    files = [(path.parent, path.read_text()) for path in (CONFIGS / "preset").rglob("*.yaml")]
    bodies = Counter((folder, re.sub(r"(?m)^#.*\n", "", text)) for folder, text in files)
    assert not [folder for (folder, _), count in bodies.items() if count > 1]
