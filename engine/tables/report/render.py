"""Render the report as one self-contained HTML page, and as Markdown."""

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from omegaconf import DictConfig

from datasets.io.files import atomic_write
from engine import RESULTS
from engine.runs.provenance import meta
from engine.tables.columns import heads
from engine.tables.intervals import is_ahead
from engine.tables.report import forest, summary
from engine.tables.report.gather import gather
from engine.tables.table import in_markdown, text

MARKS = {
    "cited": "printed in the paper, or published with it; not measured here",
    "real": "measured here on real data (synthetic benchmark: on the paper's generator)",
    "mini": "measured here on a generated dataset in the format of the real one; "
    "shows that the code runs and in which direction methods differ, not the paper's numbers",
}


def main(cfg: DictConfig) -> None:
    outputs = Path(cfg.outputs)
    if cfg.own and not outputs.is_dir():
        print(f"{outputs}: no such folder, so the report shows results/ alone.")
    if cfg.publish:
        summary.publish()
        forest.write(RESULTS)
    for path in write(outputs, cfg.own):
        print(path)


def render(template: str, sections: Sequence[Any], meta: Mapping[str, Any], **more: Any) -> str:
    """Fill page.html or page.md."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("page")),
        autoescape=template.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {
        "md": in_markdown,
        "base64": lambda path: base64.b64encode(path.read_bytes()).decode(),
    }
    functions = (heads, is_ahead, os.path.relpath, text)
    environment.globals |= {function.__name__: function for function in functions}
    values = {"sections": sections, "meta": meta, "MARKS": MARKS, **more}
    return environment.get_template(template).render(values)


def write(outputs: Path, own: bool = True) -> list[Path]:
    """Write report.html and report.md to `outputs` and return their paths."""
    sections, about = gather(RESULTS, outputs if own else None), meta()
    paths = [outputs / "report.html", outputs / "report.md"]
    for path in paths:
        content = render(f"page{path.suffix}", sections, about, folder=outputs)
        with atomic_write(path) as file:
            file.write(content.encode())
    return paths
