"""Files under SPIN's and MMHuman3D's names are found, and people without a pose are spoken of."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from datasets.ihmr import BodyDataset
from datasets.io.people import read_people
from engine.runs.run import composed, run
from engine.training import build
from models.smpl import SMPL, read_mean
from tests.engine.tiny_bodies import config


@pytest.fixture
def data(bodies: Path, tmp_path: Path) -> Path:
    """A data folder whose h36m is as SPIN's own script writes it: without SMPL parameters."""
    shutil.copytree(bodies, tmp_path / "data")
    path = tmp_path / "data" / "ihmr" / "h36m_train.npz"
    rewrite(path, without=("pose", "shape", "has_smpl"))
    return tmp_path / "data"


def rewrite(path: Path, without: tuple[str, ...] = (), **changes) -> None:
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files if key not in without}
    np.savez(path, **{**arrays, **changes})  # pyright: ignore[reportArgumentType]


def dataset(data: Path, *overrides: str, split: str = "train") -> BodyDataset:
    names = ["experiment=ihmr/spin", "preset=laptop", "paths=mini", f"paths.data={data}"]
    return build.dataset(composed("train", [*names, *overrides]), split)


def test_a_set_without_poses_is_told_before_training(data: Path, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="No person has a pose in h36m") as error:
        run(config(data, tmp_path, "ihmr/spin"))
    told = str(error.value)
    assert f"no SMPL parameters (pose, shape) in {data}/ihmr/h36m_train.npz, and no fits" in told
    assert f"no fits at {data}/ihmr/static_fits/h36m_fits.npy" in told
    assert "dataset.only=[coco]" in told
    assert "dataset.train.h36m.fits=null" in told
    lines = [line.split()[:5] for line in told.splitlines()]
    assert ["h36m", "40", "0", "0", "40"] in lines
    assert ["coco", "24", "0", "24", "0"] in lines


def test_some_sets_may_have_no_pose_but_not_all(data: Path, tmp_path: Path):
    done = run(config(data, tmp_path, "ihmr/spin", "dataset.train.h36m.fits=null"))
    line = re.findall("h36m .*", (Path(done["folder"]) / "train.log").read_text())[0]
    assert line.split()[:5] == ["h36m", "40", "0", "0", "40"]
    for changes in (["dataset.train.h36m.fits=null"], []):
        with pytest.raises(FileNotFoundError, match="No person has a pose in h36m"):
            dataset(data, "dataset.only=[h36m]", *changes)
    np.save(data / "ihmr/static_fits/h36m_fits.npy", np.zeros((40, 82), np.float32))
    made = dataset(data)
    assert re.findall("h36m .*", made.about)[0].split()[:5] == ["h36m", "40", "0", "40", "0"]
    assert np.isfinite(made.labels).all()


def test_some_people_without_a_pose_are_counted(bodies: Path, data: Path):
    shutil.copy(bodies / "ihmr/h36m_train.npz", data / "ihmr/h36m_train.npz")
    rewrite(data / "ihmr/h36m_train.npz", has_smpl=np.arange(40) % 4 > 0)
    (line,) = re.findall("h36m .*", dataset(data).about)
    assert line.split()[:5] == ["h36m", "40", "30", "0", "10"]
    assert line.endswith(f"no fits at {data}/ihmr/static_fits/h36m_fits.npy")


def test_names_of_spin_and_mmhuman3d(bodies: Path, tmp_path: Path):
    """SPIN's data/ and MMHuman3D's are taken as they are."""
    shutil.copytree(bodies, tmp_path / "data")
    folder = tmp_path / "data" / "ihmr"
    (folder / "dataset_extras").mkdir()
    (folder / "body_models").mkdir()
    for path in folder.glob("*_t*.npz"):
        path.rename(folder / "dataset_extras" / path.name)
    for path in [*folder.glob("J_*.npy"), folder / "smpl_mean_params.npz"]:
        path.rename(folder / "body_models" / path.name)
    coco = folder / "dataset_extras" / "coco_2014_train.npz"
    for name in ("lsp_dataset_original", "mpi_inf_3dhp", "hr-lspet", "mpii"):
        shutil.copy(coco, folder / "dataset_extras" / f"{name}_train.npz")
    for name in ("lsp", "mpi_inf_3dhp", "lspet", "mpii"):
        shutil.copy(folder / "static_fits/coco_fits.npy", folder / f"static_fits/{name}_fits.npy")
    made = dataset(tmp_path / "data", "dataset.only=null")
    assert all(people.has_pose.all() for people in made.sets)
    assert len(made.sets) == 6
    assert len(dataset(tmp_path / "data", split="test")) == 16
    SMPL(folder, joints_only=True)
    read_mean(folder / "smpl_mean_params.npz")


def test_names_in_object_arrays(bodies: Path, tmp_path: Path):
    path = tmp_path / "people.npz"
    shutil.copy(bodies / "ihmr/3dpw_test.npz", path)
    plain = read_people(path, tmp_path)
    names = {"imgname": plain.imgname.astype(object), "gender": np.array([b"m", b"f"] * 8)}
    unknown = np.array([{"a": 1}], object)  # what is not asked for is not read
    rewrite(path, **names, notes=unknown)
    made = read_people(path, tmp_path)
    assert made.imgname.tolist() == plain.imgname.tolist()
    assert made.flags[:, 3].tolist() == [0, 1] * 8
    rewrite(path, without=("imgname", "notes"), **names, center=made.center.astype(object))
    with pytest.raises(ValueError, match=r"people\.npz.*center contains objects"):
        read_people(path, tmp_path)
