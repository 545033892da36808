"""Generators of the mini datasets, in the on-disk formats of the real ones."""
