"""Make a table of the paper, running what is missing: see configs/table.yaml."""

from command import command


def without(words: list[str]) -> list[str]:
    """Replace ~table.rows.<row> by without=[<row>]: Hydra reads no + or space in a name."""
    marks = ("~table.rows.", "~table.extras.")
    removed = ",".join(f"'{word.split('.', 2)[2]}'" for word in words if word.startswith(marks))
    kept = [word for word in words if not word.startswith(marks)]
    return [f"without=[{removed}]", *kept] if removed else words  # before any flag


main = command(__name__, "table", "engine.tables.make.main", without)
