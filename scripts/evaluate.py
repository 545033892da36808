"""Compute the metrics of a finished run or a released checkpoint; see configs/evaluate.yaml."""

from command import command

main = command("evaluate", "engine.evaluation.evaluate.main")

if __name__ == "__main__":
    main()
