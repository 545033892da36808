"""STS-B-DIR: similarity of two sentences, 0 to 5 (Yang et al., ICML 2021).

The input is [u, v, |u - v|, u * v], from frozen vectors u and v of the two sentences.

    <root>/stsb.npz   train_u, train_v (N, F), train_score (N,); likewise val and test

scripts/prepare_stsb.py makes it from the public *_new.tsv files. N: pairs; F: width of a vector.
"""

import csv
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from datasets.io.arrays import read_npz
from datasets.tabular import VectorDataset

FILES = {"train": "train_new.tsv", "val": "dev_new.tsv", "test": "test_new.tsv"}
COLUMNS = ("sentence1", "sentence2", "score")
Embed = Callable[[Sequence[str]], NDArray[np.float32]]  # S sentences -> (S, F)


class STSBDataset(VectorDataset):
    """Pairs of sentences of a split: labels (N, 1), inputs (N, 4 F)."""

    def __init__(self, root: str | Path, split: str, augment: bool = False):
        super().__init__(split, FILES, augment)
        path = Path(root, "stsb.npz")
        file = read_npz(path, advice="Make it with scripts/prepare_stsb.py.")
        wanted = [f"{split}_{name}" for name in ("u", "v", "score")]
        if missing := [name for name in wanted if name not in file]:
            raise ValueError(f"{path}: expected {', '.join(wanted)}, missing {', '.join(missing)}.")
        u, v, score = (file[name].astype(np.float32) for name in wanted)
        self.labels = score[:, None]
        pairs = np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
        self.inputs = torch.from_numpy(pairs.astype(np.float32))


def read_pairs(path: Path) -> tuple[list[str], list[str], NDArray[np.float32]]:
    """Return the sentences and scores of a .tsv file."""
    if not path.is_file():
        source = "sts-b-dir/glue_data/STS-B of the repository YyzHarry/imbalanced-regression"
        raise FileNotFoundError(f"{path}: no such file. It is in {source}.")
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        rows, names = list(reader), reader.fieldnames or []
    if not set(COLUMNS) <= set(names):
        raise ValueError(f"{path}: expected the columns {', '.join(COLUMNS)}, got {names}.")
    first, second, scores = ([row[name] for row in rows] for name in COLUMNS)
    expected = f"{path}: expected two sentences and a score per line, from 0 to 5"
    try:
        score = np.array(scores, dtype=np.float32)  # NaN for a line that is too short
    except ValueError as error:
        raise ValueError(f"{expected}; {error}.") from None
    if not len(score) or not ((score >= 0) & (score <= 5)).all():
        raise ValueError(f"{expected}; got {score}.")
    return first, second, score


def vectors_of(path: Path) -> Embed:
    """Return the vectors of an npz of `sentences` (S,) and `vectors` (S, F)."""
    file = read_npz(path)
    if not {"sentences", "vectors"} <= set(file):
        raise ValueError(f"{path}: expected sentences (S,) and vectors (S, F), got {[*file]}.")
    known, vectors = file["sentences"].tolist(), file["vectors"].astype(np.float32)
    row = {sentence: i for i, sentence in enumerate(known)}

    def embed(sentences: Sequence[str]) -> NDArray[np.float32]:
        if missing := [sentence for sentence in sentences if sentence not in row]:
            raise ValueError(f"{path}: {len(missing)} sentences have no vector: {missing[0]!r}.")
        return vectors[[row[sentence] for sentence in sentences]]

    return embed


def wordllama() -> Embed:
    """Return the mean of the frozen 256-wide token vectors in the package wordllama (MIT).

    The package's loader is not used: it would download the tokenizer, which the package contains.
    """
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise ImportError("Token vectors need the package wordllama: pip install .[text]")
    from safetensors.numpy import load_file  # pyright: ignore[reportMissingImports]
    from tokenizers import Tokenizer  # pyright: ignore[reportMissingImports]

    package = Path(spec.origin).parent
    tokenizer = Tokenizer.from_file(str(package / "tokenizers/l2_supercat_tokenizer_config.json"))
    (vectors,) = load_file(package / "weights/l2_supercat_256.safetensors").values()
    vectors = vectors.astype(np.float32)  # (V, F)

    def embed(sentences: Sequence[str]) -> NDArray[np.float32]:
        found = tokenizer.encode_batch(list(sentences), add_special_tokens=False)
        mean = np.stack([vectors[tokens.ids].mean(0) for tokens in found])
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    return embed
