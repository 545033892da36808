"""A folder with tiny files in the real formats, named as in the commands of the docs."""

import shutil
from pathlib import Path

import numpy as np
import torch

from datasets.stsb import FILES
from models.depth import DepthNet
from models.resnet import ResNet
from tests.datasets.conftest import write_jpeg
from tests.datasets.test_nyud2 import write_mat
from tests.datasets.test_sources import IMDB
from tests.datasets.test_sources import write_mat as write_people
from tests.models.test_smpl_pickle import write_like_chumpy
from tests.scripts.test_compare_released import write_clone

OTHER_BODIES = {  # file of a training set: (fits, folder of images)
    "mpi_inf_3dhp_train": ("mpi-inf-3dhp", "mpi_inf_3dhp"),
    "lsp_dataset_original_train": ("lsp-orig", "lsp_dataset_original"),
    "hr-lspet_train": ("lspet", "hr-lspet"),
    "mpii_train": ("mpii", "mpii"),
}
BODIES = [
    *("paths.data=data", "paths.outputs=outputs", "model.pretrained=false", "dataset.size=32"),
    *("trainer.epochs=1", "trainer.batch_size=24", "trainer.workers=0", "trainer.accelerator=cpu"),
    *("log.progress=false", "log.figures=false", "task.overshoot=100"),
]


def write(folder: Path, faces: Path, rooms: Path, bodies: Path) -> Path:
    """Return the working folder, with datasets in data/ and a clone next to it."""
    here, data = folder / "checkout", folder / "checkout" / "data"
    data.mkdir(parents=True)
    for name in ("imdb_wiki", "wiki", "utkface"):
        shutil.copytree(faces / "imdb_wiki", data / name)
    (data / "utkface/imdb_wiki.csv").rename(data / "utkface/utkface.csv")
    shutil.copytree(rooms / "nyud2", data / "nyud2")
    shutil.copytree(bodies / "ihmr", data / "ihmr")
    write_other_bodies(data)
    for index, age in enumerate([20, 20, 20, 70, 70, 70]):
        write_jpeg(data / f"agedb/{index}_Name_{age}_m.jpg", 40, 40, seed=index)
        write_jpeg(data / f"faces/{index}.jpg", 40, 40, seed=index)
    lines = [f"{20 + index // 3},{index}.jpg" for index in range(6)]
    (here / "faces.csv").write_text("\n".join(["age,path", *lines]))
    for root in (data / "imdb_wiki", data / "wiki"):
        write_people(root, "imdb", IMDB[:3])
        for path, *_ in IMDB[:3]:
            write_jpeg(root / "imdb_crop" / path, 20, 20, seed=0)
    write_tables(here)
    write_sentences(here / "imbalanced-regression/sts-b-dir/glue_data/STS-B")
    write_pairs(data / "vectors")
    mat, _ = write_mat(here)
    mat.rename(here / "nyu_depth_v2_labeled.mat")
    for name in ("neutral", "m", "f"):
        write_like_chumpy(here / f"basicModel_{name}_lbs_10_207_0_v1.0.0.pkl")
    rng = np.random.default_rng(0)
    sequence = np.repeat([f"walk {i}" for i in range(8)], 5)
    np.savez(here / "mocap.npz", pose=rng.normal(0, 0.2, (40, 72)), sequence=sequence)
    for name, model in (("bni", DepthNet(50, weights=None)), ("bmc", ResNet(50))):
        state = {f"module.{key}": value for key, value in model.state_dict().items()}
        torch.save({"state_dict": state}, here / f"{name}.pth")
    write_clone(folder / "BalancedMSE")
    return here


def write_other_bodies(data: Path) -> None:
    """Link SPIN's other training sets to the generated COCO."""
    ihmr = data / "ihmr"
    for file, (fits, images) in OTHER_BODIES.items():
        (ihmr / f"{file}.npz").symlink_to(ihmr / "coco_2014_train.npz")
        (ihmr / f"static_fits/{fits}_fits.npy").symlink_to(ihmr / "static_fits/coco_fits.npy")
        (data / images).symlink_to(ihmr)
    for images in ("h36m", "coco", "3dpw"):
        (data / images).symlink_to(ihmr)


def write_tables(here: Path) -> None:
    """Write files of labels, and folders of tables."""
    rng = np.random.default_rng(0)
    lines = [",".join(f"{x:.3f}" for x in row) for row in rng.gamma(2.0, size=(60, 3))]
    (here / "labels.csv").write_text("\n".join(["age", *(line.split(",")[0] for line in lines)]))
    (here / "people.csv").write_text("\n".join(["age,error,height", *lines]))
    for folder in ("Datasets-ImbalancedRegression/Datasets_CSV", "data/tabular"):
        (here / folder).mkdir(parents=True)
        (here / folder / "wine.csv").write_text("\n".join(["y,x1,x2", *lines]))


def write_pairs(folder: Path) -> None:
    """Write stsb.npz as scripts/prepare_stsb.py does."""
    folder.mkdir()
    rng, arrays = np.random.default_rng(0), {}
    for split in FILES:
        arrays |= {f"{split}_{side}": rng.normal(size=(24, 4)) for side in "uv"}
        arrays[f"{split}_score"] = np.arange(24) % 6.0
    np.savez(folder / "stsb.npz", **arrays)


def write_sentences(folder: Path) -> None:
    """Write pairs of sentences with scores, and a vector for each sentence."""
    folder.mkdir(parents=True)
    known = []
    for split, name in FILES.items():
        pairs = [(f"{split} {i}", f"other {i}", i % 6) for i in range(8)]
        lines = [f"{i}\tnews\t{a}\t{b}\t{s}" for i, (a, b, s) in enumerate(pairs)]
        head = "index\tgenre\tsentence1\tsentence2\tscore"
        (folder / name).write_text("\n".join([head, *lines]) + "\n")
        known += [sentence for a, b, _ in pairs for sentence in (a, b)]
    sentences = np.unique(known)
    vectors = np.random.default_rng(0).normal(size=(len(sentences), 4))
    np.savez(folder / "vectors.npz", sentences=sentences, vectors=vectors)
