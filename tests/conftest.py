"""Fixtures that several folders of tests share."""

from pathlib import Path

import pytest
import torch

from synthetic.bodies import write_bodies
from synthetic.rooms import write_rooms
from tests.engine.tiny import write_faces


@pytest.fixture(scope="session")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 48 + 12 + 12 tiny images in the layout of IMDB-WIKI-DIR."""
    return write_faces(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 8 + 3 rooms in the layout of NYUD2-DIR."""
    folder = tmp_path_factory.mktemp("data")
    write_rooms(folder / "nyud2", train=8, test=3, seed=0)
    return folder


@pytest.fixture(scope="session")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 40 + 24 + 16 small pictures of bodies in the layout of SPIN's data."""
    folder = tmp_path_factory.mktemp("data")
    counts = {"h36m_train": 40, "coco_2014_train": 24, "3dpw_test": 16}
    write_bodies(folder / "ihmr", counts, size=48, seed=0)
    return folder


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors gain nothing from threads, and other jobs share the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
