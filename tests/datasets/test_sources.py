"""Ages from tiny .mat files and from file names."""

from datetime import date
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from datasets import sources


def matlab_day(born: date) -> int:
    return born.toordinal() + 366


def write_mat(root: Path, name: str, people: list[tuple]) -> None:
    """people: (path, born, photo year, face score, second face score)."""
    paths, born, taken, first, second = zip(*people, strict=True)
    cells = np.empty(len(paths), object)
    cells[:] = paths
    folder = root / f"{name}_crop"
    folder.mkdir()
    record = {
        "full_path": cells,
        "dob": np.array([matlab_day(day) for day in born], np.int32),
        "photo_taken": np.array(taken, np.uint16),
        "face_score": np.array(first, float),
        "second_face_score": np.array(second, float),
        "gender": np.ones(len(paths)),
    }
    savemat(folder / f"{name}.mat", {name: record})


IMDB = [
    ("00/june.jpg", date(1980, 6, 30), 2010, 3.0, np.nan),
    ("00/july.jpg", date(1980, 7, 1), 2010, 1.0, np.nan),
    ("01/alone.jpg", date(1950, 1, 1), 2000, 2.0, -1.0),
    ("01/two.jpg", date(1950, 1, 1), 2000, 2.0, 1.5),
    ("02/unsure.jpg", date(1950, 1, 1), 2000, 0.9, np.nan),
    ("02/noface.jpg", date(1950, 1, 1), 2000, -np.inf, np.nan),
    ("03/unborn.jpg", date(2012, 1, 1), 2010, 3.0, np.nan),
    ("03/ancient.jpg", date(1700, 1, 1), 2010, 3.0, np.nan),
    ("03/broken.jpg", date(1, 1, 1), 2010, 3.0, np.nan),
]
WIKI = [("17/a.jpg", date(1900, 12, 31), 1990, 4.0, np.nan)]


def test_one_or_both_halves(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"imdb\.mat or .*wiki\.mat, got neither"):
        sources.imdb_wiki(tmp_path)
    write_mat(tmp_path, "wiki", WIKI)
    ages, wiki = sources.imdb_wiki(tmp_path)
    assert (ages.tolist(), wiki) == ([89], ["wiki_crop/17/a.jpg"])
    write_mat(tmp_path, "imdb", IMDB)
    ages, paths = sources.imdb_wiki(tmp_path)
    imdb = ["imdb_crop/00/june.jpg", "imdb_crop/00/july.jpg", "imdb_crop/01/alone.jpg"]
    assert (ages.tolist(), paths) == ([30, 29, 50, 89], [*imdb, *wiki])


def test_ages_agree_with_the_calendar():
    """Against datetime, day by day over 400 days that hold a leap day."""
    days = [date.fromordinal(date(1959, 12, 1).toordinal() + i) for i in range(400)]
    ages = sources.ages_when_taken(np.array([matlab_day(d) for d in days]), np.full(400, 2000))
    assert ages.tolist() == [2000 - d.year - (1 if d.month >= 7 else 0) for d in days]


DAMAGE = {
    "junk": lambda file: file.write_bytes(b"junk" * 200),
    "other struct": lambda file: savemat(file, {"imdb": {"full_path": "a"}}),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:700]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_mat_file_is_named(tmp_path, damage):
    write_mat(tmp_path, "imdb", IMDB)
    DAMAGE[damage](tmp_path / "imdb_crop/imdb.mat")
    with pytest.raises(ValueError, match=r"imdb\.mat: expected the struct 'imdb' with the fields"):
        sources.imdb_wiki(tmp_path)


NAMES = {
    "agedb": {"A/0_MariaCallas_35_f.jpg": 35, "A/10_Jean_Claude_101_m.jpg": 101},
    "utkface": {"61_1_20170109142408075.jpg.chip.jpg": 61, "9_1_2_20161219204347420.jpg": 9},
}


@pytest.mark.parametrize("source", NAMES)
def test_ages_in_file_names(tmp_path, source):
    read = getattr(sources, source)
    with pytest.raises(FileNotFoundError, match=r"expected images named .*, got no \.jpg"):
        read(tmp_path)
    (tmp_path / "A").mkdir()
    for name in (*NAMES[source], "readme.txt"):
        (tmp_path / name).touch()
    ages, paths = read(tmp_path)
    assert dict(zip(paths, ages.tolist(), strict=True)) == NAMES[source]
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(ValueError, match=r"holiday\.jpg: expected a name like .*1 of 3"):
        read(tmp_path)


def test_utkface_labels(tmp_path):
    (tmp_path / "labels.csv").write_text("age,path\n26,UTKFace/a.jpg\n1,UTKFace/b.jpg\n")
    ages, paths = sources.utkface(tmp_path)
    assert (ages.tolist(), paths) == ([26.0, 1.0], ["UTKFace/a.jpg", "UTKFace/b.jpg"])
