"""Regularisers: methods that are not likelihood x prior, added to the loss as a further term.

A regulariser is a module r(features (N, F), pred (N, D), target (N, D)) -> scalar, one file each.
Its `weight` is part of the scalar. If it has a method `fit(labels)`, it is fitted to the training
labels (N, D), with `sample_weight` (N,) if those are distinct values with counts. Its parameters
are optimised with the model's; parameters and buffers are saved in the checkpoint. If it has a
method `end_epoch()`, that is called after each epoch.

Two are no terms: `FDS` changes the features, fds(features (N, F), target (N, 1)) -> (N, F), between
the backbone and the head; `BSAM` wraps an optimiser.
"""

from .bsam import BSAM as BSAM
from .conr import ConR as ConR
from .dist_loss import DistLoss as DistLoss
from .fds import FDS as FDS
from .ordinal_entropy import OrdinalEntropy as OrdinalEntropy
from .ranksim import RankSim as RankSim
from .regularizer import Regularizer as Regularizer
from .rnc import RnC as RnC
from .srl import SRL as SRL
