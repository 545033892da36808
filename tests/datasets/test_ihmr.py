"""SPIN's files under its and MMHuman3D's names are read and checked, and become items."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.ihmr import BodyDataset, held_out, split_target
from datasets.io.people import read_people
from engine.runs.run import composed, run
from engine.training import build
from models.smpl import SMPL, read_mean
from tests.engine.tiny_bodies import config


@pytest.fixture
def sources(bodies: Path) -> dict:
    folder = bodies / "ihmr"
    coco = {"npz": folder / "coco_2014_train.npz", "fits": folder / "static_fits/coco_fits.npy"}
    return {
        "train": {
            "h36m": {"probability": 0.7, "npz": folder / "h36m_train.npz", "images": folder},
            "coco": {"probability": 0.3, **coco, "images": folder},
        },
        "test": {"npz": folder / "3dpw_test.npz", "images": folder},
        **{"holdout": 0.2, "turned": 0.4, "one_warp": False},
        **{"size": 32, "mean": [0.5] * 3, "std": [0.5] * 3},
    }


def test_items(sources: dict):
    train = BodyDataset("train", **sources)
    item = train[3]
    assert item["input"].shape == (3, 32, 32)
    assert item["target"].shape == (473,)
    assert train.labels.shape == (len(train), 216)
    assert len(train) == max(train.sizes)
    val, test = BodyDataset("val", **sources), BodyDataset("test", **sources)
    assert len(test) == 16
    assert len(val) == val.sizes.sum()
    names = [{str(n) for people in d.sets for n in people.imgname} for d in (train, val, test)]
    assert not names[0] & names[1]
    assert not names[1] & names[2]
    genders = split_target(np.stack([test[i]["target"].numpy() for i in range(16)]))["gender"]
    assert set(genders[:, 0]) == {0, 1}


def test_sets_are_drawn_with_their_probabilities(sources: dict):
    train = BodyDataset("train", **sources)
    torch.manual_seed(0)
    draws = [train._find(0, float(torch.rand(())))[0].npz.stem for _ in range(2000)]
    # 0.03: three standard deviations of a share of 2,000 draws
    assert abs(np.mean([name == "h36m_train" for name in draws]) - 0.7) < 0.03
    alone = BodyDataset("train", **sources, only=["coco"])
    assert [people.npz.stem for people in alone.sets] == ["coco_2014_train"]
    with pytest.raises(ValueError, match="only must name some of"):
        BodyDataset("train", **sources, only=["lsp"])


def test_sequences_are_held_out_whole():
    names = np.array(
        [f"S1/walk_{take}.{frame:04d}.jpg" for take in range(40) for frame in range(5)]
    )
    chosen = held_out(names, 0.3).reshape(40, 5)
    assert (chosen.all(1) | ~chosen.any(1)).all()
    assert 3 < chosen.all(1).sum() < 25
    photographs = np.array([f"COCO_train2014_{number:012d}.jpg" for number in range(400)])
    assert 60 < held_out(photographs, 0.3).sum() < 180


def rewrite(path: Path, without: tuple[str, ...] = (), **changes) -> Path:
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files if key not in without}
    np.savez(path, **{**arrays, **changes})  # pyright: ignore[reportArgumentType]
    return path


@pytest.fixture
def tested(bodies: Path, tmp_path: Path) -> Path:
    """A copy of the test set that a test may change."""
    return Path(shutil.copy(bodies / "ihmr/3dpw_test.npz", tmp_path / "people.npz"))


BAD: dict[str, dict] = {
    r"gender must be m or f.*'x'": {"gender": np.full(16, "x")},
    "pose holds NaN": {"pose": np.full((16, 72), np.nan)},
    r"S is float64 \(16, 17, 4\), expected": {"S": np.zeros((16, 17, 4))},
    "expected people with boxes of positive scale": {"scale": np.zeros(16)},
    r"expected images below the folder, got imgname '\.\./a'": {"imgname": np.full(16, "../a")},
    r"expected images below the folder, got imgname '/a'": {"imgname": np.full(16, "/a")},
    "expected imgname .* of strings": {"imgname": np.zeros(16)},
    r"missing \['center', 'scale'\]. This is MMHuman3D's HumanData": {
        **{"without": ("center", "scale"), "image_path": np.array(["a"])},
    },
}


@pytest.mark.parametrize("message", BAD)
def test_bad_files(message: str, tested: Path):
    rewrite(tested, **BAD[message])
    with pytest.raises(ValueError, match=rf"people\.npz: .*{message}"):
        read_people(tested, tested.parent)


def test_missing_files_and_fits_of_others(tested: Path):
    with pytest.raises(FileNotFoundError, match=r"a\.npz or b\.npz: no such file.*dataset.only"):
        read_people(["a.npz", "b.npz"], tested.parent)
    fits = tested.with_name("fits.npy")
    np.save(fits, np.zeros((15, 82)))
    with pytest.raises(ValueError, match=r"fits\.npy.*\(15, 82\), expected.*\(16, 82\)"):
        read_people(tested, tested.parent, fits)


def test_missing_images_and_equal_genders(sources: dict, tested: Path):
    test = BodyDataset("test", **sources | {"test": {"npz": tested, "images": tested.parent}})
    with pytest.raises(FileNotFoundError, match=r"00005\.jpg: no such image"):
        test[5]
    rewrite(tested, gender=np.full(16, "m"))
    with pytest.warns(UserWarning, match=r"people\.npz: all 16 people have the same gender"):
        BodyDataset("test", **sources | {"test": {"npz": tested, "images": tested.parent}})


@pytest.fixture
def data(bodies: Path, tmp_path: Path) -> Path:
    """A data folder whose h36m is as SPIN's own script writes it: without SMPL parameters."""
    shutil.copytree(bodies, tmp_path / "data")
    path = tmp_path / "data" / "ihmr" / "h36m_train.npz"
    rewrite(path, without=("pose", "shape", "has_smpl"))
    return tmp_path / "data"


def dataset(data: Path, *overrides: str, split: str = "train") -> BodyDataset:
    names = ["experiment=ihmr/spin", "preset=laptop", "paths=mini", f"paths.data={data}"]
    return build.dataset(composed("train", [*names, *overrides]), split)


def test_a_set_without_poses_is_refused(data: Path):
    with pytest.raises(FileNotFoundError, match="No person has a pose in h36m") as error:
        dataset(data)
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


def test_names_in_object_arrays(tested: Path):
    plain = read_people(tested, tested.parent)
    names = {"imgname": plain.imgname.astype(object), "gender": np.array([b"m", b"f"] * 8)}
    unknown = np.array([{"a": 1}], object)  # what is not asked for is not read
    rewrite(tested, **names, notes=unknown)
    made = read_people(tested, tested.parent)
    assert made.imgname.tolist() == plain.imgname.tolist()
    assert made.flags[:, 3].tolist() == [0, 1] * 8
    rewrite(tested, without=("imgname", "notes"), **names, center=made.center.astype(object))
    with pytest.raises(ValueError, match=r"people\.npz.*center contains objects"):
        read_people(tested, tested.parent)
