"""jiawei-ren/BalancedMSE, nyud2-dir: priors, weights, training steps, metrics, network.

Depths are in metres.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from datasets import depth as maps
from engine.training import build
from metrics import DepthMetrics, depth_report
from scripts.released import inputs
from scripts.released.clones import Clone
from scripts.released.inputs import Network, Quantities, official, task

FIRST = maps.FIRST_BIN
ROWS = {  # experiment: their command line
    "vanilla": {},
    "inverse": {"reweight": "inverse"},
    "sqrt_inverse": {"reweight": "sqrt_inv"},
    "vanilla_lds": {"reweight": "inverse", "lds": True},
    "gai": {"bmse": True, "imp": "gai"},
    "bni": {"bmse": True, "imp": "bni"},
}
LDS = "loss.prior.smoothing={kernel: gaussian, size: 5, sigma: 2, padding: reflect, whole: true}"
GROUPS = {"": "overall", "_many": "many", "_medium": "medium", "_few": "few"}
METRICS = {"rmse": "RMSE", "mse": "MSE", "mae": "MAE", "abs_rel": "ABS_REL", "log10": "LG10"}
METRICS |= {f"delta{k}": f"DELTA{k}" for k in (1, 2, 3)}


def arguments(clone: Clone, **changes: Any) -> SimpleNamespace:
    """Return the defaults of their command line, with some changes."""
    defaults = vars(clone.load("train").parser.parse_args([]))
    return SimpleNamespace(**{**defaults, **changes})


def labels(counts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return bin centers and counts, as a training set with this histogram has them."""
    return maps.bin_centers()[:, None], np.asarray(counts)


def priors(root: Path, work: Path) -> Quantities:
    """GAI's mixture, BNI's bins and the weights of bins, from the histogram in their code."""
    clone = Clone(root, "nyud2-dir")
    loader = clone.load("loaddata")
    known = labels(loader.TRAIN_BUCKET_NUM)
    made = clone.load("preprocess_gmm").fit_gmm(SimpleNamespace(K=16))
    own = build.fitted(official("nyud2/gai").loss.prior, *known)
    sides = inputs.evidence(own, made, noise=1.0, top=10, nodes=1001)
    yield "GAI, log-evidence of the fitted mixture, 0 to 10 m", *sides
    for name, overrides, row in (("", [], "vanilla"), (" with LDS", [LDS], "vanilla_lds")):
        own = build.fitted(official("nyud2/bni", *overrides).loss.prior, *known)
        centers, weights = loader.get_bucket_info(arguments(clone, **ROWS[row]))
        yield f"BNI, bins{name}: centers", own.centers, centers
        yield f"BNI, bins{name}: weights", own.weights, weights
    for row in ("inverse", "sqrt_inverse", "vanilla_lds"):
        theirs = bucket_weights(loader, arguments(clone, **ROWS[row]))
        own = build.fitted(official(f"nyud2/{row}").loss.weights, *known)
        yield f"{row}, bin weights from 0.7 m on", own[FIRST:], theirs[FIRST:]


def sampled_depths(counts: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return depth maps, of which 3% are nearer than 0.7 m, and predictions for them."""
    rng = np.random.default_rng(0)
    shape = (2, 1, 114, 152)
    depth = (rng.choice(100, shape, p=counts / counts.sum()) + rng.random(shape)) / 10
    near = rng.random(shape) < 0.03
    depth = torch.from_numpy(np.where(near, 0.7 * rng.random(shape), depth)).float()
    return depth, depth + 0.5 * torch.randn(shape, generator=torch.Generator().manual_seed(0))


def bucket_weights(loader: Any, args: SimpleNamespace) -> np.ndarray:
    """Return the weights (100,) of their training set, without its files."""
    return np.array(object.__new__(loader.depthDataset)._get_bucket_weights(args))


def steps(root: Path, work: Path) -> Quantities:
    """A training step on the same maps, and the defaults of their command line against
    `preset=official`."""
    clone = Clone(root, "nyud2-dir")
    script, loader = clone.load("train"), clone.load("loaddata")
    yield inputs.settings("depth", vars(arguments(clone)))
    counts = np.array(loader.TRAIN_BUCKET_NUM)
    depth, start = sampled_depths(counts)
    made = clone.load("preprocess_gmm").fit_gmm(SimpleNamespace(K=16))
    for row, changes in ROWS.items():
        script.args = arguments(clone, **changes)
        criterion, weight = None, torch.ones_like(depth)
        if row == "gai":
            with mock.patch("joblib.load", return_value=made):
                criterion = script.GAILoss(1.0, "gmm.pkl")
        elif row == "bni":
            criterion = script.BNILoss(1.0, *loader.get_bucket_info(script.args))
        elif changes:
            table = bucket_weights(loader, script.args)
            weight = torch.from_numpy(table[maps.bins_of(depth.numpy())])
        mine, theirs, logged = start.clone().requires_grad_(), start.clone().requires_grad_(), []
        writer = SimpleNamespace(add_scalar=lambda name, value, step, o=logged: o.append(value))
        optimizer = mock.Mock(param_groups=())
        batch = [{"image": torch.zeros(2), "depth": depth, "weight": weight}]
        with mock.patch.object(script, "F", nn.functional, create=True):
            network = Network(lambda *_, x=theirs: x * 1)
            script.train(batch, None, network, optimizer, 0, writer, criterion)
        network = Network(lambda *_, x=mine: x * 1)
        whole = task(official(f"nyud2/{row}"), network, *labels(counts))
        value, _ = whole({"input": torch.zeros(2), "target": depth, "meta": {}})
        value.backward()
        yield f"{row}, training step: loss", value, logged[0]
        yield f"{row}, training step: gradient to the map", mine.grad, theirs.grad


def predictions(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return predictions and depths from 0.7 m to 10 m."""
    rng = np.random.default_rng(seed)
    depth = torch.from_numpy(0.7 + 9.3 * rng.random(count)).float()
    noise = torch.from_numpy(rng.standard_normal(count)).float()
    return (depth + 0.6 * noise).clamp(0.1), depth


def metrics(root: Path, work: Path) -> Quantities:
    """Their evaluator, over all pixels and per shot."""
    evaluator = Clone(root, "nyud2-dir").load("util").Evaluator()
    pred, depth = predictions(60000, seed=2)
    evaluator(pred, depth)
    theirs, balanced = evaluator.evaluate_shot(), evaluator.evaluate_shot_balanced()
    own = depth_report(pred, depth)
    yield from inputs.grouped("{}: all, many, medium, few", METRICS, GROUPS, own, theirs)
    title = "{} (their evaluate_shot_balanced): all, many, medium, few"
    yield from inputs.grouped(title, {"bmse": "MSE"}, GROUPS, own, balanced)
    below = torch.where(torch.arange(60000) % 100 == 0, -0.1, pred)
    sides = depth_report(below, depth)["delta1"], evaluator.evaluate(below, depth)["DELTA1"]
    yield "delta1 where 1% of the predictions are below zero", *sides


def shot_metrics(root: Path, work: Path) -> Quantities:
    """DIR's evaluator, whose few-shot bins begin at zero; no measured depth is below 0.7 m."""
    evaluator = Clone(root, "nyud2-dir").load("util").Evaluator()
    pred, depth = predictions(40000, seed=4)
    evaluator(pred, depth)
    names = {key: METRICS[key] for key in ("rmse", "abs_rel", "delta1")}
    sides = depth_report(pred, depth), evaluator.evaluate_shot()
    yield from inputs.grouped("NYUD2, {}: all, many, medium, few", names, GROUPS, *sides)


def network(root: Path, work: Path) -> Quantities:
    """The depth network, saved by their code and read by ours, and their test loop on it."""
    clone = Clone(root, "nyud2-dir")
    resnet, modules, net = (clone.load(f"models.{x}") for x in ("resnet", "modules", "net"))
    script, test = clone.load("train"), clone.load("test")
    torch.manual_seed(0)
    images = torch.randn(2, 3, *maps.CROP)
    script.args = arguments(clone, store_dir=str(work))
    encoder = modules.E_resnet(resnet.resnet50(pretrained=False))
    channels = [256, 512, 1024, 2048]
    model = net.model(script.args, encoder, num_features=2048, block_channel=channels)
    with torch.no_grad():
        model.R.conv2.bias.fill_(4.0)  # depths are positive
        model(torch.randn(2, 3, *maps.CROP))  # running statistics that are not the initial ones
        theirs = model.eval()(images)
    depth = 0.7 + 9 * torch.rand(2, 1, *maps.CROP)
    masks = torch.rand(2, 1, *maps.CROP) < 0.1
    batches = [
        {"image": images[i : i + 1], "depth": depth[i : i + 1], "mask": masks[i : i + 1]}
        for i in (0, 1)
    ]
    error, measured = test.test(batches, model)
    state = nn.DataParallel(model).state_dict()
    script.save_checkpoint(state, 3, np.float64(error), measured, "checkpoint.pth.tar")
    title = "depth network from a checkpoint of their save_checkpoint"
    yield from inputs.checkpoint(title, work / "checkpoint.pth.tar", "nyud2", images, theirs)
    whole = task(official("nyud2/vanilla"), model, *labels(np.ones(100)))
    report = DepthMetrics()
    with torch.no_grad():
        report.update(whole.predict({"input": images, "target": depth}), depth, masks)
    own = report.compute()
    keys = ("rmse", "mae", "delta1")
    theirs = [measured["overall"][METRICS[key]] for key in keys]
    yield f"their test loop on their network: {', '.join(keys)}", [own[key] for key in keys], theirs


def fds(root: Path, work: Path) -> Quantities:
    """Feature distribution smoothing of depths from 0.7 m to 10 m."""

    def epoch(seed: int) -> tuple:
        rng = np.random.default_rng(seed)
        levels = rng.integers(18, 256, (2, 1, 60, 80))  # of 8 bits, as training depths are
        depths = torch.from_numpy(levels).float() / 255 * 10
        features = torch.from_numpy(rng.standard_normal((2, 6, 60, 80))).float()
        features = features * (1 + depths / 5) + depths / 2
        flat = features.permute(0, 2, 3, 1).reshape(-1, 6)
        return (flat, depths.reshape(-1, 1)), (features, depths)

    module = Clone(root, "nyud2-dir").load("models.fds")
    theirs = module.FDS(6, 100, 7, kernel="gaussian", ks=5, sigma=2)
    yield from inputs.smoothing("depths", "nyud2/fds", theirs, epoch)
