"""The wheel brings one name, and leaves Hugging Face's `datasets` and others' `metrics` alone."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import losses
import metrics
from engine import ROOT

USE = """
import sys
from importlib.util import find_spec
import torch
import balanced_regression
assert balanced_regression.__version__ and "BMC" in dir(balanced_regression)
from balanced_regression import BMC, GAI, BalancedRegressor, GaussianMixture, diagnose
from balanced_regression.boosting import objective
from balanced_regression.metrics import age_report

assert balanced_regression.__file__.startswith(sys.prefix), balanced_regression.__file__
for name in ("engine", "losses", "metrics", "models", "synthetic"):
    assert find_spec(name) is None, name
y = torch.linspace(-2, 2, 64).square()[:, None]
for loss in (BMC(sigma=1.0), GAI(GaussianMixture.fit(y, components=2), sigma=1.0)):
    pred = (y + 0.1).requires_grad_()
    loss(pred, y).backward()
    assert pred.grad.isfinite().all()
ages = torch.arange(20.0, 60.0)
assert abs(age_report(ages + 2, ages, ages)["bmae"] - 2) < 1e-9
assert len(str(diagnose(y[:, 0].numpy())))
assert callable(objective) and BalancedRegressor().get_params()
assert not {"torchmetrics", "roma"} & set(sys.modules)
"""
TYPED = """
from typing import assert_type
import torch
from balanced_regression import BMC, BalancedRegressor, Gaussian, __version__
from balanced_regression.metrics import age_report
from balanced_regression.regularizers import RankSim

y = torch.zeros(4, 1)
assert_type(__version__, str)
assert_type(RankSim(weight=1.0).weight, float)
loss: torch.nn.Module = BMC(sigma=1.0)
report: dict[str, float] = age_report(y, y, y)
Gaussian(sigma="wrong", learn_sigma=[])  # the one error
"""
FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "MANIFEST.in")


def pip(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", *map(str, arguments)], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist next to it, and that from a copy, to leave the checkout unchanged."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in FILES:
        shutil.copy(ROOT / name, source)
    for name in ("losses", "metrics", "scripts", "tests/losses"):
        shutil.copytree(ROOT / name, source / name)
    shutil.copy(ROOT / "tests/test_package.py", source / "tests")
    build = f"from setuptools import build_meta; print(build_meta.build_sdist({str(target)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", target, *target.glob("*.gz"))
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; torch and the like are read from the one that tests run in."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    own = next(folder.glob("lib/python*/site-packages"))
    # A .pth adds the folder, but not the editable install that the folder's own .pth would start.
    (own / "shared.pth").write_text(sysconfig.get_path("purelib"))
    pip("--python", python, "install", "--no-deps", "--ignore-installed", wheel)
    return python


def run(command: list, cwd: Path, code: int = 0, **options) -> str:
    """Return what a process outside the checkout prints."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_one_name_and_four_dependencies_are_installed(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
        (metadata,) = [name for name in found if name.endswith("/METADATA")]
        text = archive.read(metadata).decode()
    names = {name.split("/")[0] for name in found if ".dist-info/" not in name}
    assert names == {"balanced_regression"}
    needed = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", text, re.MULTILINE)
    assert needed == ["torch", "numpy", "scipy", "scikit-learn"]
    expected = {f"{p.relative_to(ROOT / 'losses')}" for p in (ROOT / "losses").rglob("*.py")}
    expected |= {f"metrics/{p.name}" for p in (ROOT / "metrics").glob("*.py")}
    expected |= {"console/__init__.py"}
    modules = {name for name in found if name.endswith(".py")}
    assert modules == {f"balanced_regression/{name}" for name in expected}
    assert "balanced_regression/py.typed" in found


def test_the_sdist_has_the_package_and_its_documents(wheel: Path):
    with tarfile.open(next(wheel.parent.glob("*.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    made = {"PKG-INFO", "setup.cfg", "balanced_regression.egg-info"}
    tops = {name.partition("/")[0] for name in names} - made - {""}
    assert tops == {*FILES, "losses", "metrics", "scripts"}
    assert {name for name in names if name.startswith("scripts/") and name.endswith(".py")} == {
        "scripts/console/__init__.py"
    }


def test_it_is_used_by_itself(python: Path, tmp_path: Path):
    run([python, "-c", USE], tmp_path)


@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_type_checkers_know_its_types(checker: str, python: Path, tmp_path: Path):
    """One wrong call, and no other error, in a file that uses the installed package."""
    pytest.importorskip(checker)  # mypy takes 20 s for torch; .github/workflows installs it
    (tmp_path / "use.py").write_text(TYPED)
    own = next(python.parents[1].glob("lib/python*/site-packages"))
    settings = {"extraPaths": [str(own), sysconfig.get_path("purelib")], "include": ["use.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    given = ["use.py", "--python-executable", python] if checker == "mypy" else []
    said = run([sys.executable, "-m", checker, *given], tmp_path, code=1)
    found = set(re.findall(r"use\.py:(\d+).*error", said))
    assert found == {str(len(TYPED.splitlines()))}, said


def test_the_command(python: Path, tmp_path: Path):
    command = python.parent / "balanced-regression"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run([command, "--version"], tmp_path).strip() == version
    rng = np.random.default_rng(0)
    labels = rng.gamma(2.0, size=(100, 1))
    rows = np.concatenate([labels, labels + 0.5, labels], 1)
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header="target,pred,best", comments="")
    plain = labels.mean() + 0.7 * (labels - labels.mean()) + rng.normal(0, 0.4, (100, 1))
    rows = 1.7e9 + np.concatenate([labels, plain], 1)  # as times in seconds
    np.savetxt(tmp_path / "b.csv", rows, delimiter=",", header="target,pred", comments="")
    lines = (tmp_path / "b.csv").read_text().splitlines()
    lines = [f"{line},{line.split(',')[0]}" for line in lines]
    lines[0] = "target,pred,target2"
    (tmp_path / "c.csv").write_text("\n".join([*lines, "NA,1.0,1.0"]))
    code = """
from balanced_regression.console import main
main(["diagnose", "a.csv", "--column", "target"])
main(["evaluate", "a.csv", "--pred", "pred", "best"])
main(["rebalance", "b.csv", "--validation", "c.csv", "--train", "b.csv"])
main(["evaluate", "c.csv", "--pred", "pred", "--pred", "target2"])
open("d.csv", "w").write("pred,balanced\\n1,2\\n")
try:
    main(["rebalance", "d.csv", "--validation", "c.csv"])
except SystemExit as error:
    print(error)
for name in ("a.csv", "a" * 300):
    try:
        main(["evaluate", name, "--target", "age"])
    except SystemExit as error:
        print(error)
main(["diagnose", "/dev/stdin", "--column", "pred"])
"""
    with subprocess.Popen(["cat", "a.csv"], cwd=tmp_path, stdout=subprocess.PIPE) as pipe:
        said = run([python, "-c", code], tmp_path, stdin=pipe.stdout)
    assert "100 labels" in said
    table = said.partition("target,pred,balanced")[2].split("sigma")[0].split()
    pulled = np.array([row.split(",") for row in table if row.count(",") == 2], float)
    assert len(pulled) == 100
    assert pulled[:, 2].std() > pulled[:, 1].std()  # towards the rare labels
    assert "from 100 samples, 1 without a number left out" in said
    assert "100 samples (1 without a label left out)" in said
    first, _, second = said.partition("c.csv")
    lines = [text.count("difference to pred") for text in (first, second)]
    assert lines[0] == lines[1] > 0  # also with --pred given twice
    assert re.search(r"bmae +0\.5 ", said)
    assert "difference to pred [-0.5, -0.5]" in said
    assert "d.csv: it has a column 'balanced'; rename or remove it." in said
    assert "unknown column 'age'; choose from target, pred, best" in said
    assert "File name too long" in said
    assert said.count("100 labels") == 2


def test_names_are_listed_once():
    listed = [name for names in losses.MODULES.values() for name in names]
    assert sorted(losses.__all__) == sorted(listed)
    for package in (losses, metrics):
        assert set(package.__all__) <= set(dir(package))
        assert all(hasattr(package, name) for name in package.__all__)
