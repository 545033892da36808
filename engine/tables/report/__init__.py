"""The report: every table of the paper beside ours, on one page."""

from engine.tables.report.gather import Section, gather, table_configs
from engine.tables.report.render import html, markdown, write

__all__ = ["Section", "gather", "html", "markdown", "table_configs", "write"]
