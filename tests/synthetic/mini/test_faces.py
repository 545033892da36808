"""The mini faces: long-tailed ages, visible but noisy cues, real format, in folders that are
written atomically, once for the same settings, and never over other files."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from datasets.ages import AgeDataset, read_csv
from datasets.split import balanced_split
from synthetic.mini.faces import OLDEST, age_frequencies, face, sample_traits, write_faces

SMALL = {"images": 60, "size": 32, "cap": 2, "seed": 3}


def test_ages_are_long_tailed_like_imdb_wiki():
    p, ages = age_frequencies(), np.arange(OLDEST + 1)
    assert p.sum() == pytest.approx(1)
    assert 25 <= p.argmax() <= 40
    assert p[(ages >= 25) & (ages < 40)].sum() > 0.4
    assert max(p[ages < 10].sum(), p[ages > 75].sum()) < 0.03


@pytest.mark.parametrize("seed", range(5))
def test_the_default_size_has_all_three_shots(seed):
    """At 6,000 images: ages with over 100, 20 to 100 and under 20 training images, also in test."""
    ages = np.random.default_rng(seed).choice(OLDEST + 1, 6000, p=age_frequencies())
    split = balanced_split(ages, 16, seed)
    train, test = (np.bincount(ages[split == s], minlength=OLDEST + 1) for s in ("train", "test"))
    assert 4000 <= train.sum() <= 4500
    for shot in (train > 100, (train >= 20) & (train <= 100), train < 20):
        assert (test[shot] > 0).sum() >= 10
        assert test[shot].sum() >= 150


def test_every_age_renders_at_any_size():
    assert all(face(age, 24 + age % 3, (age,)).std() > 5 for age in range(0, OLDEST + 1, 4))


def test_cues_grow_with_age_but_overlap():
    """Averages rise over the ages; single people of 35 and 60 cannot always be distinguished."""
    rng = np.random.default_rng(0)
    people = {age: [sample_traits(age, rng) for _ in range(300)] for age in (3, 20, 35, 60, 85)}
    for cue in ("wrinkles", "sagging", "receding"):
        means = [np.mean([getattr(person, cue) for person in people[age]]) for age in people]
        assert means == sorted(means)
        assert means[-1] > means[1] + 0.2
    infant = [np.mean([person.infant for person in people[age]]) for age in people]
    assert infant[0] > 0.6 > 0.1 > infant[1]
    young, old = ([person.wrinkles for person in people[age]] for age in (35, 60))
    assert np.quantile(young, 0.9) > np.quantile(old, 0.1)


def contents(folder: Path) -> dict:
    return {f.relative_to(folder): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_a_dataset_in_the_real_format_and_the_same_bytes_once(tmp_path: Path):
    assert write_faces(tmp_path / "a", **SMALL)
    assert write_faces(tmp_path / "b", **SMALL)
    rows = read_csv(tmp_path / "a" / "imdb_wiki.csv")
    assert len(rows) == 60
    assert {row.path.split("/")[0] for row in rows} == {"imdb_crop", "wiki_crop"}
    dataset = AgeDataset(tmp_path / "a" / "imdb_wiki.csv", tmp_path / "a", "train", 32)
    assert dataset[0]["input"].shape == (3, 32, 32)
    first = contents(tmp_path / "a")
    assert first == contents(tmp_path / "b")
    assert not write_faces(tmp_path / "a", **SMALL)
    assert write_faces(tmp_path / "a", **SMALL | {"seed": 4})
    assert first != contents(tmp_path / "a")


def test_an_interruption_keeps_the_old_folder(tmp_path: Path):
    def interrupt(paths):
        yield from paths[:5]
        raise KeyboardInterrupt

    write_faces(tmp_path / "mini", **SMALL)
    before = contents(tmp_path / "mini")
    with pytest.raises(KeyboardInterrupt):
        write_faces(tmp_path / "mini", **SMALL | {"seed": 4}, progress=interrupt)
    assert contents(tmp_path / "mini") == before
    assert [file.name for file in tmp_path.iterdir()] == ["mini"]


def test_temporary_folders_of_killed_processes_are_removed(tmp_path: Path):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    (tmp_path / f"mini.partial-{done.pid}/imdb_crop").mkdir(parents=True)
    write_faces(tmp_path / "mini", **SMALL)
    assert [file.name for file in tmp_path.iterdir()] == ["mini"]


def test_a_folder_that_was_not_generated_is_never_touched(tmp_path: Path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"without settings\.json"):
        write_faces(tmp_path, **SMALL)
    assert (tmp_path / "precious.txt").read_text() == "mine"
