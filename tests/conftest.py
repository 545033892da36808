"""Fixtures that several folders of tests share.

Fixtures import what takes seconds to import: the process that distributes the tests needs none of
it.
"""

import functools
import pickle
from pathlib import Path

import pytest

from engine.processes.memory import keep_freed_memory

keep_freed_memory()  # before the processes that run the tests start


@pytest.fixture(scope="session")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 48 + 12 + 12 tiny images in the layout of IMDB-WIKI-DIR."""
    from tests.engine.tiny import write_faces

    return write_faces(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 8 + 3 rooms in the layout of NYUD2-DIR."""
    from synthetic.mini.rooms import write_rooms

    folder = tmp_path_factory.mktemp("data")
    write_rooms(folder / "nyud2", train=8, test=3, seed=0)
    return folder


@pytest.fixture(scope="session")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 40 + 24 + 16 small pictures of bodies in the layout of SPIN's data."""
    from synthetic.mini.bodies import write_bodies

    folder = tmp_path_factory.mktemp("data")
    counts = {"h36m_train": 40, "coco_2014_train": 24, "3dpw_test": 16}
    write_bodies(folder / "ihmr", counts, size=48, seed=0)
    return folder


@pytest.fixture(scope="session", autouse=True)
def protected_checkout() -> None:
    """Tests may write to temporary folders only."""
    from tests.process import protect_checkout

    protect_checkout()


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors are no faster with several threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", autouse=True)
def configs_are_composed_once():
    """Parse each config file and each interpolation once and compose the same choices of config
    groups once; Hydra parses thirty files per config. A pickle is copied ten times as fast as a
    config."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.config_repository import ConfigRepository
    from hydra.core.object_type import ObjectType
    from omegaconf import base

    parse, compose = ConfigRepository.load_config, ConfigLoaderImpl._load_configuration_impl
    known: dict[tuple, bytes] = {}

    def load_config(self: ConfigRepository, config_path: str):
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.scheme() != "file":
            return parse(self, config_path)
        file = Path(source.path, source._normalize_file_name(config_path))
        key = (source.provider, file, file.stat().st_mtime_ns)
        if key not in known:
            known[key] = pickle.dumps(parse(self, config_path))
        return pickle.loads(known[key])

    def load(self: ConfigLoaderImpl, config_name, overrides, from_shell=True, **others):
        if from_shell:
            return compose(self, config_name, overrides, from_shell=True, **others)
        parsed, repo = self._parse_overrides_and_create_caching_repo(config_name, overrides)
        settings = [x for x in parsed if not (x.package or repo.group_exists(x.key_or_group))]
        groups = [str(x.input_line) for x in parsed if x not in settings]
        key = (*(source.path for source in repo.get_sources()), config_name, *groups)
        if key not in known:
            made = compose(self, config_name, groups, from_shell=False, **others)
            known[key] = pickle.dumps(made)
        cfg = pickle.loads(known[key])
        self._apply_overrides_to_config(settings, cfg)
        return cfg

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "parse", functools.cache(base.parse))
        patch.setattr(ConfigRepository, "load_config", load_config)
        patch.setattr(ConfigLoaderImpl, "_load_configuration_impl", load)
        yield


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the workers of engine/processes/pool.py from a process that has imported the libraries;
    tests/engine/processes/test_pool.py tests how they start otherwise."""
    from engine.processes import pool
    from tests import process

    process.context()
    monkeypatch.setattr(pool, "START", "forkserver")
