"""Write the report, one page with every table and figure: see configs/report.yaml."""

import sys
from pathlib import Path

# The scripts folder on the path would let scripts/synthetic.py hide the package synthetic/.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import hydra  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

from engine import tables  # noqa: E402
from engine.files import whole  # noqa: E402
from engine.report import gather, html, markdown  # noqa: E402

PUBLISHED = Path(sys.path[0]) / "results"


def write(outputs: Path, own: bool = True) -> list[Path]:
    """The paths of the page and of its Markdown."""
    sections = gather(PUBLISHED, outputs if own else None)
    meta = tables.meta()
    texts = {"html": html(sections, meta), "md": markdown(sections, meta, outputs)}
    paths = []
    for form, text in texts.items():
        path = outputs / f"report.{form}"
        with whole(path) as file:
            file.write(text.encode())
        paths.append(path)
    return paths


@hydra.main(version_base="1.3", config_path="../configs", config_name="report")
def main(cfg: DictConfig) -> None:
    for path in write(Path(cfg.outputs), cfg.own):
        print(path)


if __name__ == "__main__":
    main()
