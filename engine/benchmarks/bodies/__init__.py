"""Imbalanced human mesh recovery: its task, its labels, its metrics and its figures."""
