"""Regularisers: methods that are not likelihood x prior, added to the loss as a further term.

A regulariser is a module r(features (N, F), pred (N, D), target (N, D)) -> scalar, one file each.
Its `weight` is part of the scalar. If it has a method `fit(labels)`, it is fitted to the training
labels (N, D), with `sample_weight` (N,) if those are distinct values with counts. Its parameters
are optimised with the model's; parameters and buffers are saved in the checkpoint.
"""
