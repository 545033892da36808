"""Compare regularisers, losses and post-hoc balancing with equal budgets: configs/leaderboard.yaml.

python scripts/leaderboard.py benchmarks=[stsb] settings=3
"""

from command import command


def added(words: list[str]) -> list[str]:
    """Add paths whether or not the config has them: only datasets know their names."""
    return [f"++{word}" if word.startswith("paths.") else word for word in words]


main = command("leaderboard", "engine.tables.leaderboard.main", added)

if __name__ == "__main__":
    main()
