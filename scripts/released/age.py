"""jiawei-ren/BalancedMSE, imdb-wiki-dir: weights, metrics, network, files, images, GAI's mixture.

Images are compared in units where black is -1 and white 1.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import cv2
import numpy as np
import pandas
import scipy.io
import torch
import torchvision.transforms as transforms

from datasets import sources
from datasets.ages import AgeDataset
from datasets.split import balanced_split
from engine.runs.run import composed
from engine.training.build import fitted
from losses.reweight import label_weights
from metrics import age_report
from scripts.released import inputs
from scripts.released.clones import Clone
from scripts.released.inputs import Quantities, ages, official, pair, picture, rms


def weighted(dataset: Any, work: Path, labels: np.ndarray, *options: Any, **named: Any) -> Any:
    """Return a training set of theirs with these labels."""
    frame = pandas.DataFrame({"age": labels, "path": ""})
    return dataset(frame, str(work), 224, "train", *options, **named)


def weights(root: Path, work: Path) -> Quantities:
    """Sample weights of re-weighting and LDS, and BNI's bins."""
    dataset = Clone(root, "imdb-wiki-dir").load("datasets").IMDBWIKI
    theirs = partial(weighted, dataset, work)
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


def files(root: Path, work: Path) -> Quantities:
    """IMDB-WIKI's filter and split, on generated .mat files."""
    write_mats(work)
    clone = Clone(root, "imdb-wiki-dir/data")
    script = clone.load("create_imdb_wiki")
    with mock.patch("sys.argv", ["create", "--data_path", str(work)]):
        script.create("imdb")
        script.create("wiki")
        script.combine_dataset()
    table = pandas.read_csv(work / "meta" / "imdb_wiki.csv")
    found, paths = sources.imdb_wiki(work)
    yield "IMDB-WIKI, filter: paths that are kept", paths, table["path"].to_numpy(str)
    yield "IMDB-WIKI, ages", found, table["age"].to_numpy()
    script = clone.load("preprocess_imdb_wiki")
    yield "IMDB-WIKI, split", *splits(script, work, "imdb_wiki", found)


def splits(script: Any, work: Path, name: str, found: np.ndarray) -> tuple:
    """Return our balanced split of meta/<name>.csv and theirs."""
    script.BASE_PATH = str(work)
    writable = property(lambda series: np.array(series.array, dtype=object))
    # Since pandas 3 .values is read-only and fillna(inplace) acts on a copy: train stays empty.
    with mock.patch.object(pandas.Series, "values", writable):
        script.make_balanced_testset(name, verbose=False, vis=False, save=True)
    cfg = composed("prepare_age", [f"source={name}", "root=."])
    other = pandas.read_csv(work / f"{name}.csv")["split"].fillna("train")
    return balanced_split(found, cfg.cap, cfg.seed), other.to_numpy(str)


def write_mats(work: Path) -> None:
    """Write imdb_crop/imdb.mat and wiki_crop/wiki.mat with 3,000 generated faces each."""
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


def images(root: Path, work: Path) -> Quantities:
    """Images as the network sees them, in units where black is -1 and white 1."""
    dataset = Clone(root, "imdb-wiki-dir").load("datasets").IMDBWIKI
    sizes = [(224, 224), (150, 110), (410, 340), (1100, 900)]
    names = [f"{height}.jpg" for height, _ in sizes]
    for name, size in zip(names, sizes, strict=True):
        cv2.imwrite(str(work / name), picture(*size), [cv2.IMWRITE_JPEG_QUALITY, 92])
    rows = [f"30,{name},{split}\n" for name in names for split in ("test", "train")]
    (work / "faces.csv").write_text("age,path,split\n" + "".join(rows))
    frame = pandas.read_csv(work / "faces.csv")
    own, theirs = {}, {}
    for split in ("test", "train"):
        own[split] = AgeDataset(work / "faces.csv", work, split, 224)
        theirs[split] = dataset(frame[frame["split"] == split], str(work), 224, split)
    for index, (height, width) in enumerate(sizes):
        sides = own["test"][index]["input"], theirs["test"][index][0]
        title = f"test image from {width} x {height}"
        if index == 0:
            yield f"{title}, pixels", *sides
        else:
            yield f"{title}, rms", rms(*sides), 0.0
    sides = augmented(own["train"], theirs["train"])
    yield "training image of 224 px, four crops and mirrors", *sides


def augmented(own: AgeDataset, theirs: Any) -> tuple[list, list]:
    """Return the training image of 224 px for the same crops and mirrors."""
    mine, other = [], []
    for top, left, mirror in ((0, 0, 0), (32, 5, 1), (16, 16, 0), (9, 30, 1)):
        sampled = torch.tensor((top, left, mirror))
        with mock.patch.object(torch, "randint", return_value=sampled):
            mine.append(own[0]["input"])
        crop = staticmethod(lambda image, size, d=(top, left): (*d, *size))
        coin = torch.full((1,), 1.0 - mirror)
        with (
            mock.patch.object(transforms.RandomCrop, "get_params", crop),
            mock.patch.object(torch, "rand", return_value=coin),
        ):
            other.append(theirs[0][0])
    return mine, other


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
    dataset, labels = clone.load("datasets").AgeDB, ages(oldest=101)
    for row, scheme, lds in (("sqrt_inverse", "sqrt_inv", False), ("rrt_lds", "inverse", True)):
        own = fitted(official(f"imdb_wiki/{row}").loss.weights, labels[:, None].astype(float))
        theirs = weighted(dataset, work, labels, scheme, lds=lds).weights
        yield f"AgeDB, weights, {scheme}{' with LDS' if lds else ''}", own, theirs
    script = clone.load("train", ["--store_root", str(work / "store")])
    pred, target = pair(3000, seed=9)
    own = age_report(pred, target, ages(seed=6))
    theirs = script.shot_metrics(pred.numpy().ravel(), target.numpy().ravel(), ages(seed=6))
    names = {"mae": "l1", "mse": "mse", "gm": "gmean"}
    yield from inputs.grouped("AgeDB, {}: shots", names, inputs.SHOTS, own, theirs)
