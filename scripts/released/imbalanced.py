"""YyzHarry/imbalanced-regression: code of DIR that BalancedMSE's copy of it does not have."""

from pathlib import Path
from unittest import mock

import pandas

from datasets import sources
from engine.training.build import fitted
from metrics import age_report, depth_report
from scripts.released.age_data import splits
from scripts.released.clones import Clone
from scripts.released.depth import GROUPS, METRICS, predictions
from scripts.released.inputs import SHOTS, Quantities, ages, grouped, official, pair


def agedb_files(root: Path, work: Path) -> Quantities:
    """AgeDB's ages, from generated file names, and its split."""
    clone = Clone(root, "agedb-dir/data")
    (work / "AgeDB").mkdir()
    for number, age in enumerate(ages(2500, oldest=101)):
        (work / "AgeDB" / f"{number}_SomeOne_{age}_f.jpg").touch()
    with mock.patch("sys.argv", ["create", "--data_path", str(work)]):
        clone.load("create_agedb").main()
    table = pandas.read_csv(work / "meta" / "agedb.csv")
    found, paths = sources.agedb(work)
    own = sorted(zip(paths, found.tolist(), strict=True))
    yield "AgeDB, paths and ages", own, sorted(zip(table["path"], table["age"], strict=True))
    in_their_order = table["age"].to_numpy()  # that of os.listdir
    script = clone.load("preprocess_agedb")
    yield "AgeDB, split", *splits(script, work, "agedb", in_their_order)


def agedb_weights(root: Path, work: Path) -> Quantities:
    """Sample weights of AgeDB, and its metrics."""
    clone = Clone(root, "agedb-dir")
    labels = ages(oldest=101)
    frame = pandas.DataFrame({"age": labels, "path": ""})
    for row, scheme, lds in (("sqrt_inverse", "sqrt_inv", False), ("rrt_lds", "inverse", True)):
        own = fitted(official(f"imdb_wiki/{row}").loss.weights, labels[:, None].astype(float))
        dataset = clone.load("datasets").AgeDB(frame, str(work), 224, "train", scheme, lds=lds)
        yield f"AgeDB, weights, {scheme}{' with LDS' if lds else ''}", own, dataset.weights
    script = clone.load("train", ["--store_root", str(work / "store")])
    pred, target = pair(3000, seed=9)
    own = age_report(pred, target, ages(seed=6))
    theirs = script.shot_metrics(pred.numpy().ravel(), target.numpy().ravel(), ages(seed=6))
    names = {"mae": "l1", "mse": "mse", "gm": "gmean"}
    yield from grouped("AgeDB, {}: shots", names, SHOTS, own, theirs)


def depth_metrics(root: Path, work: Path) -> Quantities:
    """DIR's evaluator, whose few-shot bins begin at zero; no measured depth is below 0.7 m."""
    evaluator = Clone(root, "nyud2-dir").load("util").Evaluator()
    pred, depth = predictions(40000, seed=4)
    evaluator(pred, depth)
    names = {key: METRICS[key] for key in ("rmse", "abs_rel", "delta1")}
    sides = depth_report(pred, depth), evaluator.evaluate_shot()
    yield from grouped("NYUD2, {}: all, many, medium, few", names, GROUPS, *sides)
