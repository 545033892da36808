"""Write the report, one page with every table and figure: see configs/report.yaml."""

from command import command

main = command(__name__, "report", "engine.tables.report.render.main")
