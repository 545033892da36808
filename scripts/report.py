"""Write the report, one page with every table and figure: see configs/report.yaml."""

from pathlib import Path

from command import command
from omegaconf import DictConfig

from datasets.files import whole
from engine import RESULTS, provenance
from engine.tables.report import gather, html, markdown


def write(outputs: Path, own: bool = True) -> list[Path]:
    """The paths of the page and of its Markdown."""
    sections = gather(RESULTS, outputs if own else None)
    meta = provenance.meta()
    texts = {"html": html(sections, meta), "md": markdown(sections, meta, outputs)}
    paths = []
    for form, text in texts.items():
        path = outputs / f"report.{form}"
        with whole(path) as file:
            file.write(text.encode())
        paths.append(path)
    return paths


@command("report")
def main(cfg: DictConfig) -> None:
    for path in write(Path(cfg.outputs), cfg.own):
        print(path)


if __name__ == "__main__":
    main()
