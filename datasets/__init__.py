"""Datasets: every sample is {"input", "target", "meta"}; `.labels` holds all labels of a split."""
