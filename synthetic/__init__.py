"""The paper's synthetic benchmark, and the generators of small datasets in the real formats."""
