"""The wheel brings one name, and leaves Hugging Face's `datasets` and others' `metrics` alone."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine import ROOT

USE = """
import sys
import torch
import balanced_regression, datasets
from balanced_regression import BMC, BNI, GAI, BalancedLoss, Bins, Gaussian, GaussianMixture
from balanced_regression.metrics import age_report

assert datasets.load_dataset("imdb") == "Hugging Face's", datasets.__file__
assert "site" in balanced_regression.__file__, balanced_regression.__file__
y = torch.randn(64, 1)
for loss in (BMC(sigma=1.0), GAI(GaussianMixture.fit(y, components=2), sigma=1.0)):
    pred = (y + 0.1).requires_grad_()
    loss(pred, y).backward()
    assert pred.grad.isfinite().all()
ages = torch.arange(20.0, 60.0)
assert abs(age_report(ages + 2, ages, ages)["bmae"] - 2) < 1e-9
absent = {"engine", "losses", "metrics", "models", "synthetic", "torchmetrics", "roma"}
assert not absent & set(sys.modules), absent & set(sys.modules)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left behind in the checkout."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("losses", "metrics"):
        shutil.copytree(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(target), str(source)], check=True)
    return next(target.glob("*.whl"))


def test_one_name_is_installed(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        needed = [
            line.split(": ")[1]
            for line in archive.read(metadata).decode().splitlines()
            if line.startswith("Requires-Dist") and "extra ==" not in line
        ]
    assert {name for name in names if not name.endswith(".dist-info")} == {"balanced_regression"}
    assert [one.split(">")[0] for one in needed] == ["torch", "numpy", "scipy", "scikit-learn"]


def test_it_is_used_beside_hugging_faces_datasets(wheel: Path, tmp_path: Path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "datasets").mkdir()
    (site / "datasets" / "__init__.py").write_text(
        'def load_dataset(name):\n    return "Hugging Face\'s"\n'
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
