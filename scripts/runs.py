"""List, diff, compare and remove runs: see configs/runs.yaml."""

from command import command

main = command("runs", "engine.runs.overview.main")

if __name__ == "__main__":
    main()
