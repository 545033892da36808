"""Sources of ages: the .mat files of IMDB-WIKI, the file names of AgeDB and UTKFace.

Every source is a function root -> (ages (N,), paths [N]), paths relative to root, in a fixed order.
"""

import re
from pathlib import Path

import numpy as np

from datasets.ages import read_csv
from datasets.io.arrays import read_mat
from datasets.io.files import MAX_BYTES

_UNIX_EPOCH = 719529  # MATLAB's day number of 1970-01-01
_FIELDS = ("full_path", "dob", "photo_taken", "face_score", "second_face_score")
_AGEDB_NAME = re.compile(r"\d+_.+_(\d{1,3})_[a-z]+\.jpe?g", re.IGNORECASE)  # id_Name_age_gender.jpg
_UTKFACE_NAME = re.compile(r"(\d{1,3})_\d.*\.jpe?g", re.IGNORECASE)  # age_gender_race_date.jpg

Faces = tuple[np.ndarray, list[str]]


def imdb_wiki(root: Path, max_bytes: int = MAX_BYTES) -> Faces:
    """Read imdb_crop/imdb.mat and wiki_crop/wiki.mat; one of them is enough."""
    halves = {name: root / f"{name}_crop" / f"{name}.mat" for name in ("imdb", "wiki")}
    found = [_half(file, name, max_bytes) for name, file in halves.items() if file.is_file()]
    if not found:
        expected = " or ".join(map(str, halves.values()))
        raise FileNotFoundError(f"Expected {expected}, got neither. Unpack imdb_crop.tar there.")
    paths = [path for _, paths in found for path in paths]
    return np.concatenate([ages for ages, _ in found]), paths


def _half(file: Path, name: str, max_bytes: int) -> Faces:
    """Return the images with exactly one confident face, aged 0 to 200 years."""
    try:
        record = read_mat(file, max_bytes, variable_names=[name])[name][0, 0]
        columns = {field: record[field].ravel() for field in _FIELDS}
    except Exception as error:  # a damaged .mat file fails in many ways
        expected = f"the struct {name!r} with the fields {', '.join(_FIELDS)}"
        message = f"{file}: expected {expected}, got {error!r}. Download the file again."
        raise ValueError(message) from error
    age = ages_when_taken(columns["dob"], columns["photo_taken"])
    alone = ~(columns["second_face_score"].astype(float) > 0)  # NaN: no second face
    keep = (columns["face_score"] >= 1) & alone & (age >= 0) & (age <= 200)
    paths = [f"{name}_crop/{np.ravel(cell)[0]}" for cell in columns["full_path"][keep]]
    return age[keep], paths


def ages_when_taken(birth_day: np.ndarray, photo_year: np.ndarray) -> np.ndarray:
    """(N,) MATLAB day numbers, (N,) years -> (N,) ages; photos are taken in mid-year."""
    day = (birth_day.astype(np.int64) - _UNIX_EPOCH).astype("datetime64[D]")
    months = day.astype("datetime64[M]").astype(np.int64)  # since January 1970
    birth_year, month = 1970 + months // 12, 1 + months % 12
    return photo_year.astype(np.int64) - birth_year - (month >= 7)


def agedb(root: Path) -> Faces:
    """Read names id_Name_age_gender.jpg of images anywhere below root."""
    return _from_names(root, _AGEDB_NAME, "id_Name_age_gender.jpg")


def utkface(root: Path) -> Faces:
    """Read labels.csv (columns age, path) if it exists, else names age_gender_race_date.jpg."""
    labels = root / "labels.csv"
    if not labels.is_file():
        return _from_names(root, _UTKFACE_NAME, "age_gender_race_date.jpg")
    rows = read_csv(labels, root, needs_split=False)
    return np.array([row.age for row in rows]), [row.path for row in rows]


def _from_names(root: Path, pattern: re.Pattern, form: str) -> Faces:
    files = sorted(f for f in root.rglob("*") if f.suffix.lower() in (".jpg", ".jpeg"))
    matches = [pattern.fullmatch(file.name) for file in files]
    strange = [file for file, match in zip(files, matches, strict=True) if match is None]
    if not files:
        raise FileNotFoundError(f"{root}: expected images named {form}, got no .jpg; check root.")
    if strange:
        count = f"{len(strange)} of {len(files)} images are named otherwise"
        raise ValueError(f"{strange[0]}: expected a name like {form}; {count}. Move them.")
    ages = np.array([int(match[1]) for match in matches if match])
    return ages, [file.relative_to(root).as_posix() for file in files]
