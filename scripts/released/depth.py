"""jiawei-ren/BalancedMSE, nyud2-dir: priors, weights, training steps, loader, metrics, network.

h, w: a depth map's size; metres throughout.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import cv2
import numpy as np
import torch
from hydra.utils import instantiate
from torch import nn

from datasets import depth as maps
from datasets import nyud2_files, nyud2_frames
from engine import build
from engine.run import composed
from losses import GaussianMixture
from metrics import DepthMetrics, depth_report
from models import released
from scripts.released.age import FLOAT32, picture
from scripts.released.clones import Clone
from scripts.released.lines import Lines, rms
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
    lines.add("GAI, log-evidence of the fitted mixture, 0 to 10 m", *sides, 1e-5)
    lds = "loss.prior.smoothing={kernel: gaussian, size: 5, sigma: 2, padding: reflect}"
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
        whole = instantiate(cfg.objective, model=own, loss=loss, weights=weights)
        value, _ = whole({"input": torch.zeros(2), "target": depth, "meta": {}})
        value.backward()
        lines.add(
            f"{row}, training step: loss", value, heard.values[0], FLOAT32, **NEAR.get(row, {})
        )
        lines.add(
            f"{row}, training step: gradient to the map",
            own.map.grad,
            theirs.map.grad,
            FLOAT32,
            **NEAR.get(row, {}),
        )


NEAR: dict[str, dict[str, Any]] = {}


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


def write_frames(work: Path, side: str, height: int, width: int) -> None:
    """Two frames in the layout of NYUD2-DIR: smooth depth with steps, as rooms have."""
    folder = work / f"nyu2_{side}"
    folder.mkdir(exist_ok=True)
    rows = []
    for number in range(2):
        grey = cv2.GaussianBlur(picture(height, width, seed=number)[..., 0], (0, 0), 3)
        metres = 0.75 + 9 * (grey / 255.0) ** 2
        metres[:, width // 3 : width // 2] *= 0.5
        metres = np.maximum(metres, 0.71)
        scale, kind = (25.5, np.uint8) if side == "train" else (1000, np.uint16)
        cv2.imwrite(str(folder / f"{number}.png"), np.round(metres * scale).astype(kind))
        cv2.imwrite(str(folder / f"{number}.jpg"), picture(height, width, seed=number + 7))
        rows.append(f"data/nyu2_{side}/{number}.jpg,data/nyu2_{side}/{number}.png\n")
    (work / f"nyu2_{side}.csv").write_text("".join(rows))


def loaders(root: Path | None, work: Path, lines: Lines) -> None:
    """What the network sees, from frames of 640 x 480 and 320 x 240."""
    clone = open_clone(root)
    loader = clone.load("loaddata")
    args = arguments(data_dir=str(work))
    for height, width in ((480, 640), (240, 320)):
        for side in ("train", "test"):
            write_frames(work, side, height, width)
        np.save(work / "test_balanced_mask.npy", np.ones((2, *maps.CROP), np.uint8))
        np.save(work / "train_depth_histogram.npy", np.ones((2, 100), np.int64))
        cfg = configured("vanilla", f"++paths.nyud2={work}")
        for title, turn, mirror in (
            ("", 0.0, False),
            (", turned by 3 degrees and mirrored", 3.0, True),
        ):
            own = drawn(build.dataset(cfg, "train"), turn, mirror)
            with clone.running():
                training = loader.getTrainingData(args).dataset
            theirs = released_drawn(clone, training, turn, mirror)
            name = f"training {{}} from {width} x {height}{title}"
            view(lines, name, own, theirs, TRAIN_VIEW | (TURNED_VIEW if turn else {}))
        own = build.dataset(cfg, "test")[0]
        with clone.running():
            theirs = loader.getTestingData(args).dataset[0]
        view(lines, f"test {{}} from {width} x {height}", own, theirs, TEST_VIEW)


TRAIN_VIEW: dict[str, dict[str, Any]] = {}
TURNED_VIEW: dict[str, dict[str, Any]] = {}
TEST_VIEW: dict[str, dict[str, Any]] = {}


def view(lines: Lines, name: str, own: dict, theirs: dict, explained: dict) -> None:
    """The depth map in metres, and the image in units of the colours' standard deviation."""
    depth, image = explained.get("depth", {}), explained.get("image", {})
    pairs = (
        ("depth", own["target"], theirs["depth"], 1e-5, "m", depth),
        ("image", own["input"], theirs["image"], 1e-4, "std", image),
    )
    for what, mine, other, tolerance, unit, options in pairs:
        if options or np.abs(np.subtract(*map(np.asarray, (mine, other)))).max() > tolerance:
            lines.add(
                f"{name.format(what)}, rms", rms(mine, other), 0.0, tolerance, unit, **options
            )
        else:
            lines.add(f"{name.format(what)}, pixels", mine, other, tolerance, unit)


def drawn(dataset: Any, turn: float, mirror: bool) -> dict:
    """Our training sample for these draws, its colours as they are.

    A positive angle turns the other way than theirs, which no distribution can tell.
    """

    def rand(*size: Any, **kwargs: Any) -> torch.Tensor:
        if size in ((2,), ((2,),)):
            return torch.tensor([(1 - turn / maps.ANGLE) / 2, 0.0 if mirror else 1.0])
        return torch.full(size, 0.5)

    zeros = lambda *size, **kwargs: torch.zeros(size)  # noqa: E731
    with mock.patch.object(torch, "rand", rand), mock.patch.object(torch, "randn", zeros):
        return dataset[0]


def released_drawn(clone: Clone, dataset: Any, turn: float, mirror: bool) -> dict:
    """Theirs."""
    for step in dataset.transform.transforms:
        if hasattr(step, "eigval"):
            step.eigval = torch.zeros(3)
    angle = lambda low, high: turn if high == maps.ANGLE else 0.0  # noqa: E731
    with (
        clone.running(),
        mock.patch("random.uniform", angle),
        mock.patch("random.random", lambda: 0.0 if mirror else 1.0),
    ):
        return dataset[0]


def colours(root: Path | None, work: Path, lines: Lines) -> None:
    """Lighting and the three jitters, for the same draws in two orders."""
    clone = open_clone(root)
    steps = clone.load("nyu_transform")
    image = picture(*maps.CROP)
    found = []
    for order in ([0, 1, 2], [2, 0, 1]):
        alphas, lights = [0.3, -0.25, 0.1], torch.tensor([0.05, -0.08, 0.11])
        draws = {
            "randperm": lambda n, o=order: torch.tensor(o),
            "rand": lambda n: torch.tensor([(1 - alpha / maps.JITTER) / 2 for alpha in alphas]),
            "randn": lambda n: lights / maps.LIGHTING,
        }
        with mock.patch.multiple(torch, **draws):
            matrix = maps.random_colours(image.reshape(-1, 3).mean(0) / 255)
        found.append([maps.to_tensor(image, matrix)])
        values = iter(alphas)
        fill = lambda tensor, *args: tensor.copy_(lights)  # noqa: E731
        tensor = torch.from_numpy(image).permute(2, 0, 1).float() / 255
        loader = clone.load("loaddata")
        with (
            clone.running(),
            mock.patch("random.uniform", lambda low, high: next(values)),
            mock.patch.object(torch, "randperm", draws["randperm"]),
            mock.patch.object(torch.Tensor, "normal_", fill),
            mock.patch.object(loader, "depthDataset", SimpleNamespace),
            mock.patch.object(loader, "DataLoader", lambda dataset, *args, **kwargs: dataset),
        ):
            made = loader.getTrainingData(arguments(data_dir="."))
            sample = {"image": tensor, "depth": None}
            for step in made.transform.transforms:
                if isinstance(step, (steps.Lighting, steps.ColorJitter, steps.Normalize)):
                    sample = step(sample)
        found[-1].append(sample["image"])
    sides = [[row[side] for row in found] for side in (0, 1)]
    lines.add("training image: lighting and jitter, same draws", *sides, 1e-4, "std")


def mask(root: Path | None, work: Path, lines: Lines) -> None:
    """The balanced test mask: the draws differ, how many pixels each bin gives does not."""
    clone = open_clone(root)
    script = clone.load("preprocess_nyud2")
    rng = np.random.default_rng(1)
    metres = (0.7 + 9.3 * rng.random((3, 1, *maps.CROP)) ** 2).astype(np.float32)
    batches = [{"depth": torch.from_numpy(metres)}]
    with clone.running(), mock.patch.object(script, "load_data", lambda args: (None, batches)):
        script.create_balanced_testset(SimpleNamespace(data_dir=str(work)))
    theirs = np.load(work / "test_balanced_mask.npy")
    bins = maps.bins_of(metres[:, 0])
    own = maps.balanced_mask(bins, seed=0)
    counts = [np.bincount(bins[m > 0], minlength=100) for m in (own, theirs)]
    lines.same("balanced test mask, pixels of each bin", *counts)


def frames(root: Path | None, work: Path, lines: Lines) -> None:
    """The maps that the mask and the histogram are made from."""
    clone = open_clone(root)
    loader = clone.load("loaddata")
    for height, width in ((480, 640), (240, 320)):
        write_frames(work, "test", height, width)
        np.save(work / "test_balanced_mask.npy", np.ones((2, *maps.CROP), np.uint8))
        with clone.running():
            theirs = loader.getTestingData(arguments(data_dir=str(work))).dataset[1]["depth"]
        found = nyud2_frames.frames(work, "test")
        name = f"map that mask and histogram are made from, {width} x {height}"
        lines.add(name, nyud2_files.crop(found.depth(1)), theirs, 1e-6, "m")


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
        lines.add(f"{key}: all, many, medium, few", *sides, FLOAT32)
    sides = ([own["bmse" + s] for s in groups.values()], [balanced[g]["MSE"] for g in groups])
    lines.add("bmse (their evaluate_shot_balanced): all, many, medium, few", *sides, FLOAT32)
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
    objective = instantiate(
        cfg.objective, model=model, loss=build._loss(cfg, *labels(np.ones(100)))[0]
    )
    report = DepthMetrics()
    with torch.no_grad():
        pred = objective.predict({"input": images, "target": depth})
    report.update(pred, depth, masks)
    found = report.compute()
    keys = {"rmse": "RMSE", "mae": "MAE", "delta1": "DELTA1"}
    sides = ([found[key] for key in keys], [measured["overall"][key] for key in keys.values()])
    lines.add("their test loop on their network: rmse, mae, delta1", *sides, FLOAT32)


CHANNELS = [256, 512, 1024, 2048]
CHECKS = (priors, weights, steps, loaders, colours, frames, mask, metrics, network)
