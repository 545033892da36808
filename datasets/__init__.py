"""What is learnt from: every dataset gives {"input", "target", "meta"} and `.labels`."""

from datasets.ages import AgeDataset
from datasets.ihmr import BodyDataset
from datasets.nyud2 import DepthDataset
from datasets.stsb import STSBDataset

__all__ = ["AgeDataset", "BodyDataset", "DepthDataset", "STSBDataset"]
