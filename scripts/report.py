"""Write the report, one page with every table and figure: see configs/report.yaml."""

from command import command

main = command("report", "engine.tables.report.render.main")

if __name__ == "__main__":
    main()
