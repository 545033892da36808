"""Reproduce every table and figure of the paper: see configs/reproduce/default.yaml."""

from command import command


def added(words: list[str]) -> list[str]:
    """Add paths whether or not the config has them: only datasets know their names."""
    return [f"++{word}" if word.startswith("paths.") else word for word in words]


main = command(__name__, "reproduce/default", "engine.tables.reproduce.reproduce", added)
