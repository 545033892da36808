"""jiawei-ren/BalancedMSE, nyud2-dir: priors, weights, training steps, metrics, network.

h, w: a depth map's size; metres throughout.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from datasets import depth as maps
from engine.cli import targets
from engine.runs.run import composed
from engine.training import build
from losses import GaussianMixture
from metrics import DepthMetrics, depth_report
from models import released
from scripts.released.age import FLOAT32
from scripts.released.clones import Clone
from scripts.released.lines import Lines
from scripts.released.saved import loaded_outputs, old_spelling

FIRST = maps.FIRST_BIN
ARGS = {  # their command line's defaults
    **{"lds": False, "lds_kernel": "gaussian", "lds_ks": 5, "lds_sigma": 2, "reweight": "none"},
    **{"bucket_start": 7, "bucket_num": 100, "fds": False, "bmse": False, "lr": 1e-4},
    **{"start_update": 0, "start_smooth": 1, "fds_mmt": 0.9},
}


def open_clone(root: Path | None) -> Clone:
    return Clone(root, "nyud2-dir", stand_ins=["tensorboardX"])


def arguments(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**ARGS, **changes})


def configured(row: str, *overrides: str) -> Any:
    return composed("train", [f"experiment=nyud2/{row}", "preset=official", *overrides])


def labels(counts: Any) -> tuple[np.ndarray, np.ndarray]:
    """What a training set of this histogram tells its loss: bin centers and counts."""
    return maps.bin_centers()[:, None], np.asarray(counts)


def priors(root: Path | None, work: Path, lines: Lines) -> None:
    """GAI's mixture and BNI's bins, from the histogram that their code carries."""
    clone = open_clone(root)
    loader, script = clone.load("loaddata"), clone.load("preprocess_gmm")
    counts = loader.TRAIN_BUCKET_NUM
    with clone.running():
        made = script.fit_gmm(SimpleNamespace(K=16))
    other = GaussianMixture(made["weights"], made["means"], made["variances"])
    own = build.fitted(configured("gai").loss.prior, *labels(counts))
    x = torch.linspace(0, 10, 1001, dtype=torch.float64)[:, None]
    sides = [prior.log_density(x, torch.ones((), dtype=x.dtype)) for prior in (own, other)]
    lines.add("GAI, log-evidence of the fitted mixture, 0 to 10 m", sides[0], sides[1], 1e-5)
    lds = (
        "loss.prior.smoothing={kernel: gaussian, size: 5, sigma: 2, padding: reflect, whole: true}"
    )
    for name, changes in (("", {}), (" with LDS", {"lds": True, "reweight": "inverse"})):
        own = build.fitted(
            configured("bni", *([lds] if changes else [])).loss.prior, *labels(counts)
        )
        with clone.running():
            centers, weights = loader.get_bucket_info(arguments(**changes))
        lines.add(f"BNI, bins{name}: centers", own.centers, centers, 1e-6, "m")
        lines.add(f"BNI, bins{name}: weights", own.weights, weights, FLOAT32)


class Map(nn.Module):
    """A network whose output is a parameter."""

    def __init__(self, start: torch.Tensor):
        super().__init__()
        self.map = nn.Parameter(start.clone())

    def forward(self, *inputs: Any) -> torch.Tensor:
        return self.map * 1


class Heard:
    """A writer and an optimiser that only listen."""

    param_groups: tuple = ()

    def __init__(self) -> None:
        self.values: list[float] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.values.append(value)

    def zero_grad(self) -> None:
        pass

    step = zero_grad


ROWS = {  # experiment: what their command line says
    "vanilla": {},
    "inverse": {"reweight": "inverse"},
    "sqrt_inverse": {"reweight": "sqrt_inv"},
    "vanilla_lds": {"reweight": "inverse", "lds": True},
    "gai": {"bmse": True, "imp": "gai"},
    "bni": {"bmse": True, "imp": "bni"},
}


def steps(root: Path | None, work: Path, lines: Lines) -> None:
    """A training step on the same maps, of which 3% are nearer than 0.7 m."""
    clone = open_clone(root)
    script, loader = clone.load("train"), clone.load("loaddata")
    counts = np.array(loader.TRAIN_BUCKET_NUM)
    rng = np.random.default_rng(0)
    spread = counts / counts.sum()
    depth = (rng.choice(100, (2, 1, 114, 152), p=spread) + rng.random((2, 1, 114, 152))) / 10
    near = rng.random(depth.shape) < 0.03
    depth = torch.from_numpy(np.where(near, 0.7 * rng.random(depth.shape), depth)).float()
    start = depth + 0.5 * torch.randn(depth.shape, generator=torch.Generator().manual_seed(0))
    for row, changes in ROWS.items():
        script.args = arguments(**changes)
        with clone.running():
            criterion, weight = None, torch.ones_like(depth)
            if row == "gai":
                made = clone.load("preprocess_gmm").fit_gmm(SimpleNamespace(K=16))
                with mock.patch("joblib.load", lambda path, made=made: made):
                    criterion = script.GAILoss(1.0, "gmm.pkl")
            elif row == "bni":
                criterion = script.BNILoss(1.0, *loader.get_bucket_info(script.args))
            elif changes:
                table = bucket_weights(loader, script.args)
                weight = torch.from_numpy(table[maps.bins_of(depth.numpy())])
            theirs, heard = Map(start), Heard()
            batch = [{"image": torch.zeros(2), "depth": depth, "weight": weight}]
            with mock.patch.object(script, "F", nn.functional, create=True):
                script.train(batch, None, theirs, heard, 0, heard, criterion)
        cfg = configured(row)
        loss, weights = build._loss(cfg, *labels(counts))
        own = Map(start)
        whole = targets.make(cfg.task, model=own, loss=loss, weights=weights)
        value, _ = whole({"input": torch.zeros(2), "target": depth, "meta": {}})
        value.backward()
        lines.add(f"{row}, training step: loss", value, heard.values[0], FLOAT32)
        lines.add(
            f"{row}, training step: gradient to the map",
            own.map.grad,
            theirs.map.grad,
            FLOAT32,
        )


def bucket_weights(loader: Any, args: SimpleNamespace) -> np.ndarray:
    """(100,) the weights of their training set, whose files are not needed."""
    dataset = object.__new__(loader.depthDataset)
    return np.array(dataset._get_bucket_weights(args))


def weights(root: Path | None, work: Path, lines: Lines) -> None:
    """The weight of each bin from 0.7 m on."""
    clone = open_clone(root)
    loader = clone.load("loaddata")
    for row in ("inverse", "sqrt_inverse", "vanilla_lds"):
        with clone.running():
            theirs = bucket_weights(loader, arguments(**ROWS[row]))
        found = build.fitted(configured(row).loss.weights, *labels(loader.TRAIN_BUCKET_NUM))
        lines.add(f"{row}, bin weights from 0.7 m on", found[FIRST:], theirs[FIRST:], FLOAT32)


def metrics(root: Path | None, work: Path, lines: Lines) -> None:
    """Their evaluator, over all pixels and per shot."""
    clone = open_clone(root)
    evaluator = clone.load("util").Evaluator()
    rng = np.random.default_rng(2)
    depth = torch.from_numpy(0.7 + 9.3 * rng.random(60000)).float()
    pred = (depth + 0.6 * torch.from_numpy(rng.standard_normal(60000)).float()).clamp(0.1)
    with clone.running():
        evaluator(pred, depth)
        theirs = evaluator.evaluate_shot()
        balanced = evaluator.evaluate_shot_balanced()
    own = depth_report(pred, depth)
    groups = {"overall": "", "many": "_many", "medium": "_medium", "few": "_few"}
    names = {"RMSE": "rmse", "MSE": "mse", "MAE": "mae", "ABS_REL": "abs_rel", "LG10": "log10"}
    names |= {f"DELTA{k}": f"delta{k}" for k in (1, 2, 3)}
    for name, key in names.items():
        sides = ([own[key + s] for s in groups.values()], [theirs[g][name] for g in groups])
        lines.add(f"{key}: all, many, medium, few", sides[0], sides[1], FLOAT32)
    sides = ([own["bmse" + s] for s in groups.values()], [balanced[g]["MSE"] for g in groups])
    lines.add(
        "bmse (their evaluate_shot_balanced): all, many, medium, few", sides[0], sides[1], FLOAT32
    )
    below = torch.where(torch.arange(60000) % 100 == 0, -0.1, pred)
    with clone.running():
        other = evaluator.evaluate(below, depth)["DELTA1"]
    name = "delta1 where 1% of the predictions are below zero"
    options = {"deviation": "Predictions below zero", "bound": 0.05}
    lines.add(name, depth_report(below, depth)["delta1"], other, FLOAT32, **options)


def network(root: Path | None, work: Path, lines: Lines) -> None:
    """The depth network saved by their code and read by ours, and what their test makes of it."""
    clone = open_clone(root)
    parts = {name: clone.load(f"models.{name}") for name in ("resnet", "modules", "net")}
    script, test = clone.load("train"), clone.load("test")
    torch.manual_seed(0)
    images = torch.randn(2, 3, *maps.CROP)
    args = arguments(store_dir=str(work))
    with clone.running():
        encoder = parts["modules"].E_resnet(parts["resnet"].resnet50(pretrained=False))
        model = parts["net"].model(args, encoder, num_features=2048, block_channel=CHANNELS)
        with torch.no_grad():
            model.R.conv2.bias.fill_(4.0)  # depths are positive
            model(torch.randn(2, 3, *maps.CROP))  # running statistics that are not the initial ones
            theirs = model.eval()(images)
        depth = 0.7 + 9 * torch.rand(2, 1, *maps.CROP)
        masks = torch.rand(2, 1, *maps.CROP) < 0.1
        rows = (images.split(1), depth.split(1), masks.split(1))
        batches = [
            dict(zip(("image", "depth", "mask"), row, strict=True))
            for row in zip(*rows, strict=True)
        ]
        error, measured = test.test(batches, model)
        script.args = args
        state = nn.DataParallel(model).state_dict()
        script.save_checkpoint(state, 3, np.float64(error), measured, "checkpoint.pth.tar")
    path = work / "checkpoint.pth.tar"
    for name, file in (("today's numpy", path), ("numpy 1", old_spelling(path))):
        own = loaded_outputs(lambda f=file: released.load(f, "nyud2"), images)
        title = f"depth network from a checkpoint of their save_checkpoint, {name}"
        lines.add(title, own, theirs, FLOAT32)
    cfg = configured("vanilla")
    task = targets.make(cfg.task, model=model, loss=build._loss(cfg, *labels(np.ones(100)))[0])
    report = DepthMetrics()
    with clone.running(), torch.no_grad():
        pred = task.predict({"input": images, "target": depth})
    report.update(pred, depth, masks)
    found = report.compute()
    keys = {"rmse": "RMSE", "mae": "MAE", "delta1": "DELTA1"}
    sides = ([found[key] for key in keys], [measured["overall"][key] for key in keys.values()])
    lines.add("their test loop on their network: rmse, mae, delta1", sides[0], sides[1], FLOAT32)


def settings(root: Path | None, work: Path, lines: Lines) -> None:
    """The defaults of their command line beside `preset=official`."""
    clone = open_clone(root)
    args = clone.load("train").parser.parse_args([])
    own = configured("gai")
    theirs = {
        "epochs": (own.trainer.epochs, args.epochs),
        "batch": (own.trainer.batch_size, args.batch_size),
        "learning rate": (own.optim.optimizer.lr, args.lr),
        "weight decay": (own.optim.optimizer.weight_decay, args.weight_decay),
        "sigma": (own.loss.likelihood.sigma, args.init_noise_sigma),
    }
    mine, other = zip(*theirs.values(), strict=True)
    lines.same(f"settings: {', '.join(theirs)}", list(mine), list(other))


CHANNELS = [256, 512, 1024, 2048]
CHECKS = (priors, weights, steps, metrics, network, settings)
