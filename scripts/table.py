"""Make a table of the paper, running what is missing: see configs/table.yaml."""

from command import command

main = command("table", "engine.tables.make.main")

if __name__ == "__main__":
    main()
