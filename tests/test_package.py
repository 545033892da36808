"""The wheel brings one name, and leaves Hugging Face's `datasets` and others' `metrics` alone."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from engine import ROOT

USE = """
import sys
from importlib.util import find_spec
import torch
import balanced_regression
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
BESIDE = """
import sys
import datasets
from balanced_regression import BMC

assert datasets.__file__.startswith(sys.prefix), datasets.__file__
rows = datasets.Dataset.from_dict({"age": [[20.0], [30.0], [70.0]]}).with_format("torch")
loss = BMC(sigma=1.0)(rows["age"][:] + 1, rows["age"][:])
assert loss.isfinite()
"""


def pip(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", *map(str, arguments)], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left behind in the checkout."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("losses", "metrics"):
        shutil.copytree(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", target, source)
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


def use(python: Path, code: str, cwd: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", code], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_one_name_and_four_dependencies_are_installed(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        needed = [
            line.split(": ")[1]
            for line in archive.read(metadata).decode().splitlines()
            if line.startswith("Requires-Dist") and "extra ==" not in line
        ]
        modules = {name for name in archive.namelist() if name.endswith(".py")}
    assert {name for name in names if not name.endswith(".dist-info")} == {"balanced_regression"}
    assert [one.split(">")[0] for one in needed] == ["torch", "numpy", "scipy", "scikit-learn"]
    expected = {f"{p.relative_to(ROOT / 'losses')}" for p in (ROOT / "losses").rglob("*.py")}
    expected |= {f"metrics/{p.name}" for p in (ROOT / "metrics").glob("*.py")}
    assert modules == {f"balanced_regression/{name}" for name in expected}


def test_it_is_used_by_itself(python: Path, tmp_path: Path):
    use(python, USE, tmp_path)


def test_it_is_used_beside_hugging_faces_datasets(python: Path, tmp_path: Path):
    """The one test that needs the network, as the installation does."""
    pip("--python", python, "install", "datasets")
    use(python, BESIDE, tmp_path)
