"""jiawei-ren/BalancedMSE, imdb-wiki-dir: losses, weights, metrics, network.

K: components or bins.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pandas
import torch

from engine.training.build import fitted
from losses import BMC, BNI, GAI, Bins, GaussianMixture, WeightedLoss
from losses.reweight import label_weights
from metrics import age_report
from scripts.released import inputs
from scripts.released.clones import Clone
from scripts.released.inputs import Quantities, ages, official, pair, stepped

MIXTURE = {
    "weights": np.array([0.2, 0.5, 0.3]),
    "means": np.array([[8.0], [31.0], [55.0]]),
    "variances": np.array([[[20.0]], [[90.0]], [[150.0]]]),
}


def losses(root: Path, work: Path) -> Quantities:
    """GAI, BMC and BNI: values and gradients for three noise scales."""
    theirs = Clone(root, "imdb-wiki-dir").load("balanaced_mse")
    file = str(work / "gmm.pkl")
    joblib.dump(MIXTURE, file)
    prior = GaussianMixture(*MIXTURE.values())
    centers, counts = np.unique(ages(), return_counts=True)
    weights = counts / counts.sum()
    bins = Bins(centers, weights)
    for name, ours, other in (
        ("GAI", lambda s: GAI(prior, s, True), lambda s: theirs.GAILoss(s, file)),
        ("BMC", lambda s: BMC(s, True), theirs.BMCLoss),
        ("BNI", lambda s: BNI(bins, s, True), lambda s: theirs.BNILoss(s, centers, weights)),
    ):
        title = f"{name}, {{}}, sigma 0.5, 1, 10"
        yield from inputs.noisy_losses(title, ours, other, pair(), (0.5, 1.0, 10.0))


def weighted_losses(root: Path, work: Path) -> Quantities:
    """The baselines' weighted errors."""
    theirs = Clone(root, "imdb-wiki-dir").load("loss")
    weight = torch.linspace(0.2, 3.0, 256)
    for error in ("mse", "l1", "huber", "focal_mse", "focal_l1"):
        baseline = WeightedLoss(error)  # pyright: ignore[reportArgumentType]
        function = getattr(theirs, f"weighted_{error}_loss")
        own = stepped(lambda p, t, b=baseline: b(p, t, weight), *pair())
        other = stepped(lambda p, t, f=function: f(p, t, weight[:, None]), *pair())
        yield f"weighted {error}, value and gradient", own, other


def weights(root: Path, work: Path) -> Quantities:
    """Sample weights of re-weighting and LDS, and BNI's bins."""
    dataset = Clone(root, "imdb-wiki-dir").load("datasets").IMDBWIKI

    def theirs(labels: np.ndarray, **options: Any) -> Any:
        frame = pandas.DataFrame({"age": labels, "path": ""})
        return dataset(frame, str(work), 224, "train", **options)

    old = np.where(np.arange(4000) % 200 == 0, 118 + np.arange(4000) // 200, ages())
    for title, row, labels, options in (
        ("inverse (rrt)", "rrt", ages(), {"reweight": "inverse"}),
        ("sqrt_inv (sqrt_inverse)", "sqrt_inverse", ages(), {"reweight": "sqrt_inv"}),
        ("inverse with LDS (rrt_lds)", "rrt_lds", ages(), {"reweight": "inverse", "lds": True}),
        ("inverse, some ages above 120", "rrt", old, {"reweight": "inverse"}),
    ):
        own = fitted(official(f"imdb_wiki/{row}").loss.weights, labels[:, None].astype(float))
        yield f"weights, {title}", own, theirs(labels, **options).weights
    for kernel in ("gaussian", "triang", "laplace"):
        lds = {"kernel": kernel, "size": 5, "sigma": 2.0}
        edges = np.arange(-0.5, 201)
        own = label_weights(ages(), edges, scheme="sqrt_inverse", clip=None, lds=lds)
        options = {"lds": True, "lds_kernel": kernel, "lds_ks": 5, "lds_sigma": 2.0}
        other = theirs(ages(), reweight="sqrt_inv", **options).weights
        yield f"weights, sqrt_inv, LDS {kernel}", own, other
    smoothing = "loss.prior.smoothing={kernel: gaussian, size: 5, sigma: 2, whole: true}"
    for name, overrides in (("BNI, bins", []), ("BNI, bins with LDS", [smoothing])):
        prior = official("imdb_wiki/bni", *overrides).loss.prior
        own = fitted(prior, ages()[:, None].astype(float))
        lds = {"lds": bool(overrides), "lds_kernel": "gaussian", "lds_ks": 5, "lds_sigma": 2}
        centers, weights = theirs(ages()).get_bucket_info(max_target=200, **lds)
        yield f"{name}: centers", own.centers, centers
        yield f"{name}: weights", own.weights, weights


def metrics(root: Path, work: Path) -> Quantities:
    """The metrics that their validation prints and returns, for the same predictions, and the
    defaults of their command line against `preset=official`."""
    store = ["--store_root", str(work / "store"), "--data_dir", str(work)]
    script = Clone(root, "imdb-wiki-dir").load("train", store)
    yield inputs.settings("age", vars(script.args))
    pred, target = pair(3000, seed=5)
    train = ages(seed=6)
    batches = list(zip(pred.split(256), target.split(256), [None] * 12, strict=True))
    mse, mae, gm, bmse, bmae = script.validate(batches, torch.nn.Identity(), train)
    rows = pred.numpy().ravel(), target.numpy().ravel(), train
    plain = {"all": {"mse": mse, "l1": mae, "gmean": gm}, **script.shot_metrics(*rows)}
    balanced = {"all": {"mse": bmse, "l1": bmae}, **script.shot_metrics_balanced(*rows)}
    for names, theirs in (
        ({"mae": "l1", "mse": "mse", "gm": "gmean"}, plain),
        ({"bmae": "l1", "bmse": "mse"}, balanced),
    ):
        own, groups = age_report(pred, target, train), {"": "all", **inputs.SHOTS}
        yield from inputs.grouped("{}: all, many, medium, few", names, groups, own, theirs)


def network(root: Path, work: Path) -> Quantities:
    """ResNet-50, saved by their code with numpy scalars and read by ours."""
    clone = Clone(root, "imdb-wiki-dir")
    resnet, save = clone.load("resnet"), clone.load("utils").save_checkpoint
    torch.manual_seed(0)
    images = torch.randn(2, 3, 224, 224)
    options = dict.fromkeys(("bucket_num", "bucket_start", "start_update", "start_smooth"), 0)
    options |= dict.fromkeys(("kernel", "ks", "sigma", "momentum"), None)
    model = resnet.resnet50(fds=False, **options)
    model(torch.randn(4, 3, 64 + 160, 224))  # running statistics that are not the initial ones
    state = {
        "epoch": 1,
        "model": "resnet50",
        "best_loss": np.float32(7.5),
        "state_dict": torch.nn.DataParallel(model).state_dict(),
        "optimizer": torch.optim.Adam(model.parameters()).state_dict(),
    }
    save(SimpleNamespace(store_root=str(work), store_name="."), state, False)
    with torch.no_grad():
        theirs = model.eval()(images)
    title = "ResNet-50 from a checkpoint of their save_checkpoint"
    yield from inputs.checkpoint(title, work / "ckpt.pth.tar", "imdb_wiki", images, theirs)


def fds(root: Path, work: Path) -> Quantities:
    """Feature distribution smoothing of all ages from 0 to 99, and of ages with gaps."""
    module = Clone(root, "imdb-wiki-dir").load("fds")
    for name in ("ages", "ages with gaps"):

        def epoch(seed: int, gaps: bool = name != "ages") -> tuple:
            labels = torch.arange(6000).float() % 100
            labels = torch.from_numpy(ages(6000, 98, seed)).float() if gaps else labels
            column, generator = labels[:, None], torch.Generator().manual_seed(seed)
            features = torch.randn(6000, 6, generator=generator) * (1 + column / 50) + column / 20
            return (features, column), (features, column if seed else labels)

        theirs = module.FDS(6, 100, 0, kernel="gaussian", ks=5, sigma=2)
        yield from inputs.smoothing(name, "imdb_wiki/fds", theirs, epoch)
