"""The generators of the mini datasets in the real on-disk formats."""
