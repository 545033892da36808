"""Make an age dataset's CSV, balanced split and packed store (configs/prepare_age.yaml)."""

from command import command

main = command("prepare_age", "engine.benchmarks.prepare.ages")

if __name__ == "__main__":
    main()
