"""YyzHarry/imbalanced-regression: what of DIR's code is not in BalancedMSE's copy of it."""

from pathlib import Path
from unittest import mock

import numpy as np
import pandas
import torch

from datasets import sources
from engine.training.build import fitted
from metrics import age_report, depth_report
from scripts.released.age import FLOAT32, ages, node_of, open_clone, pair
from scripts.released.age_data import compare_split
from scripts.released.clones import Clone
from scripts.released.lines import Lines


def agedb_files(root: Path | None, work: Path, lines: Lines) -> None:
    """AgeDB's ages, from made-up file names, and its split."""
    clone = open_clone(root, "agedb-dir/data")
    script = clone.load("create_agedb")
    (work / "AgeDB").mkdir()
    for number, age in enumerate(ages(2500, oldest=101)):
        (work / "AgeDB" / f"{number}_SomeOne_{age}_f.jpg").touch()
    with clone.running(), mock.patch("sys.argv", ["create", "--data_path", str(work)]):
        script.main()
    table = pandas.read_csv(work / "meta" / "agedb.csv")
    found, paths = sources.agedb(work)
    own = sorted(zip(paths, found.tolist(), strict=True))
    lines.same("AgeDB, paths and ages", own, sorted(zip(table["path"], table["age"], strict=True)))
    split = clone.load("preprocess_agedb")
    in_their_order = table["age"].to_numpy()  # that of os.listdir
    compare_split(clone, split, work, "agedb", in_their_order, lines, "AgeDB, split")


def agedb_weights(root: Path | None, work: Path, lines: Lines) -> None:
    """Sample weights of AgeDB, and its metrics."""
    clone = open_clone(root, "agedb-dir")
    dataset = clone.load("datasets").AgeDB
    for row, scheme, lds in (("sqrt_inverse", "sqrt_inv", False), ("rrt_lds", "inverse", True)):
        own = fitted(node_of(row), ages(oldest=101)[:, None].astype(float))
        with clone.running():
            frame = pandas.DataFrame({"age": ages(oldest=101), "path": ""})
            other = dataset(frame, str(work), 224, "train", scheme, lds=lds).weights
        lines.add(f"AgeDB, weights, {scheme}{' with LDS' if lds else ''}", own, other, FLOAT32)
    script = clone.load("train", ["--store_root", str(work / "store")])
    pred, target = pair(3000, seed=9)
    own = age_report(pred, target, ages(seed=6))
    with clone.running():
        rows = pred.numpy().ravel(), target.numpy().ravel()
        theirs = script.shot_metrics(*rows, ages(seed=6))
    shots = {"many": "many", "medium": "median", "few": "low"}
    for key, name in {"mae": "l1", "mse": "mse", "gm": "gmean"}.items():
        mine = [own[f"{key}_{shot}"] for shot in shots]
        lines.add(f"AgeDB, {key}: shots", mine, [theirs[s][name] for s in shots.values()], FLOAT32)


def depth_metrics(root: Path | None, work: Path, lines: Lines) -> None:
    """DIR's evaluator, whose few-shot bins begin at zero; nothing measured lies there."""
    evaluator = Clone(root, "nyud2-dir").load("util").Evaluator()
    rng = np.random.default_rng(4)
    depth = torch.from_numpy(0.7 + 9.3 * rng.random(40000)).float()
    pred = (depth + 0.6 * torch.from_numpy(rng.standard_normal(40000)).float()).clamp(0.1)
    with Clone(root, "nyud2-dir").running():
        evaluator(pred, depth)
        theirs = evaluator.evaluate_shot()
    own = depth_report(pred, depth)
    for name, key in {"RMSE": "rmse", "ABS_REL": "abs_rel", "DELTA1": "delta1"}.items():
        mine = [own[key], own[f"{key}_many"], own[f"{key}_medium"], own[f"{key}_few"]]
        other = [theirs[group][name] for group in ("overall", "many", "medium", "few")]
        lines.add(f"NYUD2, {key}: all, many, medium, few", mine, other, FLOAT32)


CHECKS = (agedb_files, agedb_weights, depth_metrics)
