"""The command `balanced-regression` of the installed package.

    balanced-regression diagnose labels.csv
    balanced-regression evaluate predictions.csv --train labels.csv
    balanced-regression rebalance predictions.csv --validation val.csv > balanced.csv

Libraries are imported after the arguments are read, so that --help is fast.
"""

import argparse
import csv
import os
import sys
from importlib.metadata import version
from pathlib import Path


def main(arguments: list[str] | None = None) -> None:
    """Run a subcommand; a wrong file or column ends with a message and exit code 1."""
    given = parser().parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads take CPU time and save none
    try:
        given.run(given)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        sys.exit(f"balanced-regression {given.command}: {error}")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("balanced-regression", description="Imbalanced regression.")
    top.add_argument("--version", action="version", version=version("balanced-regression"))
    commands = top.add_subparsers(dest="command", required=True)

    about = "how imbalanced labels are, which prior fits, and what balancing will change"
    one = commands.add_parser("diagnose", help=about, description=f"Report {about}.")
    one.add_argument("labels", type=Path, help="CSV file with a header, or one number per line")
    one.add_argument("--column", help="column of the labels; by default the only one")
    one.add_argument("--residuals", help="column with label minus prediction of a plain model")
    one.add_argument("--figure", type=Path, help="file of a figure: .png, .pdf or .svg")
    one.set_defaults(run=diagnose)

    about = "balanced errors of predictions with intervals; several columns are compared"
    two = commands.add_parser("evaluate", help=about, description=f"Report {about}.")
    two.add_argument("predictions", type=Path, help="CSV file with labels and predictions")
    two.add_argument("--target", default="target", help="column of the labels; default: target")
    two.add_argument(
        "--pred", nargs="+", action="extend", help="columns of predictions; default: pred, or all"
    )
    two.add_argument("--train", type=Path, help="CSV file of training labels, for the shots")
    two.add_argument("--kind", default="any", choices=("any", "age", "similarity"))
    two.set_defaults(run=evaluate)

    about = "predictions of a trained model, balanced: the file with one more column, `balanced`"
    three = commands.add_parser("rebalance", help=about, description=f"Print {about}.")
    three.add_argument("predictions", type=Path, help="CSV file with a column of predictions")
    three.add_argument(
        "--validation",
        type=Path,
        required=True,
        help="CSV file with predictions and labels of samples that the model was not trained on",
    )
    three.add_argument("--train", type=Path, help="CSV file of training labels; default: those")
    three.add_argument("--pred", default="pred", help="column of the predictions; default: pred")
    three.add_argument("--target", default="target", help="column of the labels; default: target")
    three.add_argument("--strength", type=float, default=1.0, help="0: no change, 1: balanced")
    three.set_defaults(run=rebalance)
    return top


def diagnose(given: argparse.Namespace) -> None:
    import balanced_regression as package  # pyright: ignore[reportMissingImports]
    from balanced_regression.metrics import columns  # pyright: ignore[reportMissingImports]

    labels = columns.numbers(given.labels, given.column)
    residuals = given.residuals and columns.numbers(given.labels, given.residuals)
    found = package.diagnose(labels, residuals)
    print(found)
    if given.figure is not None:
        found.plot(given.figure, given.figure.suffix.lstrip(".") or "png")
        print(f"Figure: {given.figure}")


def evaluate(given: argparse.Namespace) -> None:
    from balanced_regression import metrics  # pyright: ignore[reportMissingImports]

    options = {"pred": given.pred, "target": given.target, "train": given.train}
    print(metrics.evaluate_csv(given.predictions, kind=given.kind, **options))


def rebalance(given: argparse.Namespace) -> None:
    import numpy as np
    from balanced_regression import Rebalancer  # pyright: ignore[reportMissingImports]
    from balanced_regression.metrics import columns  # pyright: ignore[reportMissingImports]

    table, held_out = columns.read(given.predictions), columns.read(given.validation)
    if "balanced" in table:
        raise ValueError(f"{given.predictions}: it has a column 'balanced'; rename or remove it.")
    pred = columns.numeric(given.predictions, table, given.pred)
    names = given.pred, given.target
    val, labels = (columns.numeric(given.validation, held_out, name) for name in names)
    known = np.isfinite(val) & np.isfinite(labels)
    val, labels = val[known], labels[known]
    train = labels if given.train is None else columns.training_labels(given.train, given.target)
    balance = Rebalancer(train, strength=given.strength).fit(val, labels)
    table["balanced"] = [f"{value:.12g}" for value in balance(pred)]
    left = f", {missing} without a number left out" if (missing := int((~known).sum())) else ""
    print(f"sigma {float(balance.sigma):.4g}, from {len(labels)} samples{left}", file=sys.stderr)
    csv.writer(sys.stdout).writerows([table, *zip(*table.values(), strict=True)])
