"""What is learnt from: every dataset gives {"input", "target", "meta"} and `.labels`."""

from datasets.imdb_wiki import AgeDataset

__all__ = ["AgeDataset"]
