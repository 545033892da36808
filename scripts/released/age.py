"""jiawei-ren/BalancedMSE, imdb-wiki-dir: losses, weights, images, metrics, network, files.

N: rows; K: components or bins.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import cv2
import joblib
import numpy as np
import pandas
import scipy.io
import torch

from datasets import AgeDataset, sources
from datasets.split import balanced_split
from engine.build import fitted
from engine.run import composed
from losses import BMC, BNI, GAI, Bins, GaussianMixture, WeightedLoss
from losses.density import label_weights
from metrics import age_report
from models import released
from scripts.released.clones import Clone
from scripts.released.lines import Lines, rms
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
            lines.add(f"{name}, {what}, sigma 0.5, 1, 10", *sides, FLOAT32)


def weighted_losses(root: Path | None, work: Path, lines: Lines) -> None:
    """The baselines' errors, weighted: value and gradient together."""
    clone = open_clone(root)
    theirs = clone.load("loss")
    weight = torch.linspace(0.2, 3.0, 256)
    for error in ("mse", "l1", "huber", "focal_mse", "focal_l1"):
        own = stepped(lambda p, t, e=error: WeightedLoss(e)(p, t, weight), *pair(), None)
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
        bound=0.1,
    )
    edges = np.arange(-0.5, 201)
    for kernel in ("gaussian", "triang", "laplace"):
        lds = {"kernel": kernel, "size": 5, "sigma": 2.0}
        own = label_weights(ages(), edges, scheme="sqrt_inverse", clip=None, lds=lds)
        options = {"lds": True, "lds_kernel": kernel, "lds_ks": 5, "lds_sigma": 2.0}
        other = theirs(ages(), reweight="sqrt_inv", **options).weights
        lines.add(f"weights, sqrt_inv, LDS {kernel}", own, other, FLOAT32)
    smoothing = "loss.prior.smoothing={kernel: gaussian, size: 5, sigma: 2}"
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


def mixture(root: Path | None, work: Path, lines: Lines) -> None:
    """GAI's mixture of eight components, fitted by their script to the same labels."""
    clone = open_clone(root)
    script = clone.load("preprocess_gmm")
    frame = pandas.DataFrame({"age": ages(), "path": "", "split": "train"})
    frame.to_csv(work / "imdb_wiki.csv", index=False)
    batches = [(None, torch.from_numpy(ages()).float()[:, None], None)]  # images are not needed
    argv = ["preprocess_gmm", "--data_dir", str(work), "--workers", "0"]
    here = mock.patch.object(script, "DataLoader", lambda *args, **kwargs: batches)
    with clone.running(), here, mock.patch("sys.argv", argv), inside(work):
        script.prerpocess_gmm()
    made = joblib.load(work / "gmm.pkl")
    other = GaussianMixture(made["weights"], made["means"], made["variances"])
    own = fitted(node_of("gai", "prior"), ages()[:, None].astype(float))
    x = torch.linspace(0, 120, 481, dtype=torch.float64)[:, None]
    sigma = torch.tensor(10.0, dtype=torch.float64)
    lines.add(
        "GAI, the fitted mixture: log-evidence at 0 to 120 years",
        own.log_density(x, sigma),
        other.log_density(x, sigma),
        1e-5,
    )


def files(root: Path | None, work: Path, lines: Lines) -> None:
    """IMDB-WIKI's filter and split, on made-up .mat files."""
    write_mats(work)
    clone = open_clone(root, "imdb-wiki-dir/data")
    script = clone.load("create_imdb_wiki")
    with clone.running(), mock.patch("sys.argv", ["create", "--data_path", str(work)]):
        script.create("imdb")
        script.create("wiki")
        script.combine_dataset()
    table = pandas.read_csv(work / "meta" / "imdb_wiki.csv")
    found, paths = sources.imdb_wiki(work)
    lines.same("IMDB-WIKI, filter: paths that are kept", paths, table["path"].to_numpy(str))
    lines.same("IMDB-WIKI, ages", found, table["age"].to_numpy())
    split = clone.load("preprocess_imdb_wiki")
    compare_split(clone, split, work, "imdb_wiki", found, lines, "IMDB-WIKI, split")


def compare_split(
    clone: Clone, script: Any, work: Path, name: str, found: np.ndarray, lines: Lines, title: str
) -> None:
    """Their balanced split of meta/<name>.csv beside ours."""
    script.BASE_PATH = str(work)
    writable = property(lambda series: np.array(series.array, dtype=object))
    # Since pandas 3 .values is read-only and fillna(inplace) acts on a copy: train stays empty.
    with clone.running(), mock.patch.object(pandas.Series, "values", writable):
        script.make_balanced_testset(name, verbose=False, vis=False, save=True)
    cfg = composed("prepare_age", [f"source={name}", "root=."])
    other = pandas.read_csv(work / f"{name}.csv")["split"].fillna("train")
    lines.same(title, balanced_split(found, cfg.cap, cfg.seed), other.to_numpy(str))


def write_mats(work: Path) -> None:
    """imdb_crop/imdb.mat and wiki_crop/wiki.mat with 3,000 made-up faces each."""
    rng = np.random.default_rng(3)
    for name in ("imdb", "wiki"):
        folder = work / f"{name}_crop"
        folder.mkdir(exist_ok=True)
        n = 3000
        second = np.where(rng.random(n) < 0.7, np.nan, rng.normal(0, 2, n))
        record = {
            "full_path": np.array([f"{i % 100:02d}/{i}.jpg" for i in range(n)], object)[None],
            "dob": rng.integers(650000, 735000, n).astype(np.int32)[None],
            "gender": np.ones((1, n)),
            "photo_taken": rng.integers(1950, 2015, n).astype(np.uint16)[None],
            "face_score": np.where(rng.random(n) < 0.2, -np.inf, rng.normal(2, 2, n))[None],
            "second_face_score": second[None],
        }
        scipy.io.savemat(folder / f"{name}.mat", {name: record})


def images(root: Path | None, work: Path, lines: Lines) -> None:
    """Images as the network sees them, in units where black is -1 and white 1."""
    clone = open_clone(root)
    dataset = clone.load("datasets")
    sizes = {"equal": (224, 224), "small": (150, 110), "large": (410, 340), "huge": (1100, 900)}
    rows = []
    for name, (height, width) in sizes.items():
        cv2.imwrite(
            str(work / f"{name}.jpg"), picture(height, width), [cv2.IMWRITE_JPEG_QUALITY, 92]
        )
        rows += [f"30,{name}.jpg,test", f"30,{name}.jpg,train"]
    (work / "faces.csv").write_text("age,path,split\n" + "\n".join(rows) + "\n")
    frame = pandas.read_csv(work / "faces.csv")
    for split in ("test", "train"):
        own = AgeDataset(work / "faces.csv", work, split, 224)
        theirs = dataset.IMDBWIKI(frame[frame["split"] == split], str(work), 224, split)
        if split == "train":
            augmented(clone, own, theirs, lines)
            continue
        for index, name in enumerate(sizes):
            image = own[index]["input"]
            with clone.running():
                other, label, _ = theirs[index]
            size, options = f"{sizes[name][1]} x {sizes[name][0]}", {}
            if name != "equal":
                options = {"deviation": "Resizing", "bound": 0.05}
            difference = rms(image, other) if options else image - other
            what = "rms" if options else "pixels"
            lines.add(
                f"test image from {size}, {what}",
                difference,
                np.zeros(np.shape(difference)),
                1e-6,
                "of 2",
                **options,
            )
            assert float(label[0]) == float(own[index]["target"])


def augmented(clone: Clone, own: AgeDataset, theirs: Any, lines: Lines) -> None:
    """The training image of 224 px for the same draws of crop and mirror."""
    import torchvision.transforms as transforms

    found: list[list[torch.Tensor]] = []
    for top, left, mirror in ((0, 0, 0), (32, 5, 1), (16, 16, 0), (9, 30, 1)):
        with mock.patch.object(
            torch, "randint", lambda *a, d=(top, left, mirror), **k: torch.tensor(d)
        ):
            found.append([own[0]["input"]])
        place = staticmethod(lambda image, size, d=(top, left): (*d, *size))
        coin = lambda *args, m=mirror, **kwargs: torch.full((1,), 1.0 - m)  # noqa: E731
        with (
            clone.running(),
            mock.patch.object(transforms.RandomCrop, "get_params", place),
            mock.patch.object(torch, "rand", coin),
        ):
            found[-1].append(theirs[0][0])
    sides = [[row[side] for row in found] for side in (0, 1)]
    lines.add("training image of 224 px, four crops and mirrors", *sides, 1e-6, "of 2")


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """(H, W, 3) uint8: smooth shapes with some grain, as photographs have."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 20 + 2, width // 20 + 2, 3)).astype(np.uint8)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).astype(float)
    return np.clip(smooth + rng.normal(0, 4, smooth.shape), 0, 255).astype(np.uint8)


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


def inside(folder: Path) -> Any:
    """The working folder, for code that writes where it is run."""
    import contextlib

    return contextlib.chdir(folder)


CHECKS = (losses, weighted_losses, weights, mixture, files, images, metrics, network)
