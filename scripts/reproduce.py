"""Reproduce every table and figure of the paper: see configs/reproduce/default.yaml."""

from command import command

main = command("reproduce/default", "engine.tables.reproduce.reproduce", free="paths")

if __name__ == "__main__":
    main()
