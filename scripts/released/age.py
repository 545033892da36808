"""jiawei-ren/BalancedMSE, imdb-wiki-dir: losses, weights, metrics, network.

N: rows; K: components or bins.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pandas
import torch

from engine.runs.run import composed
from engine.training.build import fitted
from losses import BMC, BNI, GAI, Bins, GaussianMixture, WeightedLoss
from losses.reweight import label_weights
from metrics import age_report
from models import released
from scripts.released.clones import Clone
from scripts.released.lines import Lines
from scripts.released.saved import loaded_outputs, old_spelling

FLOAT32 = 1e-5  # of sums of a few hundred float32 numbers
SIGMAS = (0.5, 1.0, 10.0)
MIXTURE = {
    "weights": np.array([0.2, 0.5, 0.3]),
    "means": np.array([[8.0], [31.0], [55.0]]),
    "variances": np.array([[[20.0]], [[90.0]], [[150.0]]]),
}


def open_clone(root: Path | None, folder: str = "imdb-wiki-dir") -> Clone:
    return Clone(root, folder, stand_ins=["tensorboard_logger"])


def ages(count: int = 4000, oldest: int = 120, seed: int = 0) -> np.ndarray:
    """(N,) long-tailed integer ages, whose tails have gaps."""
    draw = np.random.default_rng(seed).gamma(6.0, 6.0, count)
    return np.clip(draw, 0, oldest).astype(int)


def pair(rows: int = 256, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions and targets (N, 1) in years."""
    target = torch.from_numpy(ages(rows, seed=seed)).float()[:, None]
    noise = torch.randn(rows, 1, generator=torch.Generator().manual_seed(seed))
    return target * 0.8 + 8 + 6 * noise, target


def stepped(loss: Callable, pred: torch.Tensor, target: torch.Tensor, sigma: Any) -> list:
    """[value, d / d pred, d / d sigma] of a loss with its own sigma."""
    pred = pred.clone().requires_grad_()
    value = loss(pred, target)
    value.backward()
    return [value, pred.grad, None if sigma is None else sigma.grad]


def losses(root: Path | None, work: Path, lines: Lines) -> None:
    """GAI, BMC and BNI: values and gradients for three noise scales."""
    clone = open_clone(root)
    theirs = clone.load("balanaced_mse")
    joblib.dump(MIXTURE, work / "gmm.pkl")
    mixture = GaussianMixture(*(MIXTURE[key] for key in ("weights", "means", "variances")))
    centers, weights = np.unique(ages(), return_counts=True)
    weights = weights / weights.sum()
    pairs: dict[str, tuple[Callable, Callable]] = {
        "GAI": (
            lambda s: GAI(mixture, s, True),
            lambda s: theirs.GAILoss(s, str(work / "gmm.pkl")),
        ),
        "BMC": (lambda s: BMC(s, True), theirs.BMCLoss),
        "BNI": (
            lambda s: BNI(Bins(centers, weights), s, True),
            lambda s: theirs.BNILoss(s, centers, weights),
        ),
    }
    for name, (ours, released_loss) in pairs.items():
        found = []
        for sigma in SIGMAS:
            own = ours(sigma)
            found.append([stepped(own, *pair(), own.likelihood.sigma)])
            with clone.running():
                other = released_loss(sigma)
                found[-1].append(stepped(other, *pair(), other.noise_sigma))
        for part, what in enumerate(("value", "gradient to pred", "gradient to sigma")):
            sides = [[row[side][part] for row in found] for side in (0, 1)]
            lines.add(f"{name}, {what}, sigma 0.5, 1, 10", sides[0], sides[1], FLOAT32)


def weighted_losses(root: Path | None, work: Path, lines: Lines) -> None:
    """The baselines' errors, weighted: value and gradient together."""
    clone = open_clone(root)
    theirs = clone.load("loss")
    weight = torch.linspace(0.2, 3.0, 256)
    for error in ("mse", "l1", "huber", "focal_mse", "focal_l1"):
        baseline = WeightedLoss(error)  # pyright: ignore[reportArgumentType]
        own = stepped(lambda p, t, b=baseline: b(p, t, weight), *pair(), None)
        function = getattr(theirs, f"weighted_{error}_loss")
        with clone.running():
            other = stepped(lambda p, t, f=function: f(p, t, weight[:, None]), *pair(), None)
        lines.add(f"weighted {error}, value and gradient", own[:2], other[:2], FLOAT32)


def weights(root: Path | None, work: Path, lines: Lines) -> None:
    """Sample weights of re-weighting and LDS, and BNI's bins."""
    clone = open_clone(root)
    dataset = clone.load("datasets").IMDBWIKI

    def theirs(labels: np.ndarray, **options: Any) -> Any:
        with clone.running():
            frame = pandas.DataFrame({"age": labels, "path": ""})
            return dataset(frame, str(work), 224, "train", **options)

    for row, scheme, lds in (
        ("rrt", "inverse", False),
        ("sqrt_inverse", "sqrt_inv", False),
        ("rrt_lds", "inverse", True),
    ):
        node = composed("train", [f"experiment=imdb_wiki/{row}", "preset=official"]).loss.weights
        other = theirs(ages(), reweight=scheme, lds=lds).weights
        own = fitted(node, ages()[:, None].astype(float))
        name = f"weights, {scheme}{' with LDS' if lds else ''} ({row})"
        lines.add(name, own, other, FLOAT32)
    old = np.where(np.arange(4000) % 200 == 0, 118 + np.arange(4000) // 200, ages())
    lines.add(
        "weights, inverse, some ages above 120",
        fitted(node_of("rrt"), old[:, None].astype(float)),
        theirs(old, reweight="inverse").weights,
        FLOAT32,
        deviation="Label bins of the weights",
        bound=4.0,
    )
    edges = np.arange(-0.5, 201)
    for kernel in ("gaussian", "triang", "laplace"):
        lds = {"kernel": kernel, "size": 5, "sigma": 2.0}
        own = label_weights(ages(), edges, scheme="sqrt_inverse", clip=None, lds=lds)
        options = {"lds": True, "lds_kernel": kernel, "lds_ks": 5, "lds_sigma": 2.0}
        other = theirs(ages(), reweight="sqrt_inv", **options).weights
        lines.add(f"weights, sqrt_inv, LDS {kernel}", own, other, FLOAT32)
    smoothing = "loss.prior.smoothing={kernel: gaussian, size: 5, sigma: 2, whole: true}"
    for name, overrides in (("BNI, bins", []), ("BNI, bins with LDS", [smoothing])):
        own = fitted(node_of("bni", "prior", *overrides), ages()[:, None].astype(float))
        with clone.running():
            other = theirs(ages()).get_bucket_info(
                max_target=200, lds=bool(overrides), lds_kernel="gaussian", lds_ks=5, lds_sigma=2
            )
        lines.add(f"{name}: centers", own.centers, other[0], 0.0, "years")
        lines.add(f"{name}: weights", own.weights, other[1], FLOAT32)


def node_of(row: str, part: str = "weights", *overrides: str) -> Any:
    cfg = composed("train", [f"experiment=imdb_wiki/{row}", "preset=official", *overrides])
    return cfg.loss[part]


def open_script(root: Path | None, work: Path) -> tuple[Clone, Any]:
    """Their training script, which reads its arguments and makes its folders when imported."""
    clone = open_clone(root)
    store = ["--store_root", str(work / "store"), "--data_dir", str(work)]
    return clone, clone.load("train", store)


def metrics(root: Path | None, work: Path, lines: Lines) -> None:
    """What their validation prints and returns, for the same predictions."""
    clone, script = open_script(root, work)
    pred, target = pair(3000, seed=5)
    train = ages(seed=6)
    own = age_report(pred, target, train)
    batches = list(zip(pred.split(256), target.split(256), [None] * 12, strict=True))
    with clone.running():
        mse, l1, gmean, bmse, bl1 = script.validate(batches, torch.nn.Identity(), train)
        rows = pred.numpy().ravel(), target.numpy().ravel(), train
        plain, balanced = script.shot_metrics(*rows), script.shot_metrics_balanced(*rows)
    overall = {"mae": l1, "mse": mse, "gm": gmean, "bmae": bl1, "bmse": bmse}
    names = {"mae": "l1", "mse": "mse", "gm": "gmean", "bmae": "l1", "bmse": "mse"}
    shots = {"many": "many", "medium": "median", "few": "low"}
    for key, name in names.items():
        table = balanced if key.startswith("b") else plain
        theirs = [overall[key], *(table[shot][name] for shot in shots.values())]
        mine = [own[key], *(own[f"{key}_{shot}"] for shot in shots)]
        lines.add(f"{key}: all, many, medium, few", mine, theirs, FLOAT32)


def network(root: Path | None, work: Path, lines: Lines) -> None:
    """ResNet-50 saved by their code, with the numpy scalars they save, and read by ours."""
    clone = open_clone(root)
    resnet, save = clone.load("resnet"), clone.load("utils").save_checkpoint
    torch.manual_seed(0)
    images = torch.randn(2, 3, 224, 224)
    with clone.running():
        options = dict.fromkeys(("bucket_num", "bucket_start", "start_update", "start_smooth"), 0)
        options |= dict.fromkeys(("kernel", "ks", "sigma", "momentum"), None)
        model = resnet.resnet50(fds=False, **options)
        model(torch.randn(4, 3, 64 + 160, 224))  # running statistics that are not the initial ones
        args = SimpleNamespace(store_root=str(work), store_name=".")
        state = {
            "epoch": 1,
            "model": "resnet50",
            "best_loss": np.float32(7.5),
            "state_dict": torch.nn.DataParallel(model).state_dict(),
            "optimizer": torch.optim.Adam(model.parameters()).state_dict(),
        }
        save(args, state, False)
        with torch.no_grad():
            theirs = model.eval()(images)
    path = work / "ckpt.pth.tar"
    for name, file in (("today's numpy", path), ("numpy 1", old_spelling(path))):
        own = loaded_outputs(lambda f=file: released.load(f, "imdb_wiki"), images)
        title = f"ResNet-50 from a checkpoint of their save_checkpoint, {name}"
        lines.add(title, own, theirs, FLOAT32)


def settings(root: Path | None, work: Path, lines: Lines) -> None:
    """The defaults of their command line beside `preset=official`."""
    _, script = open_script(root, work)
    own = composed("train", ["experiment=imdb_wiki/vanilla", "preset=official"])
    theirs = {
        "epochs": (own.trainer.epochs, script.args.epoch),
        "batch": (own.trainer.batch_size, script.args.batch_size),
        "learning rate": (own.optim.optimizer.lr, script.args.lr),
        "first milestone": (own.optim.schedule.milestones[0], script.args.schedule[0]),
        "second milestone": (own.optim.schedule.milestones[1], script.args.schedule[1]),
        "learning rate of sigma": (own.optim.loss_lr, script.args.sigma_lr),
    }
    mine, other = zip(*theirs.values(), strict=True)
    lines.same(f"settings of stage 1: {', '.join(theirs)}", list(mine), list(other))


CHECKS = (losses, weighted_losses, weights, metrics, network, settings)
