"""Add the pages outside docs/ to the site, adjust their links, and write the API reference."""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
REFERENCE = {
    "losses": (
        *("balanced", "likelihoods", "robust", "heteroscedastic", "categorical", "structured"),
        "uvote",
        *("priors", "mixture", "reweight", "boosting", "estimator", "diagnosis", "posthoc"),
    ),
    "metrics": ("report", "balanced", "predictions", "similarity", "errors", "classes"),
    "regularizers": (
        "ranksim",
        "conr",
        "rnc",
        "ordinal_entropy",
        "srl",
        "dist_loss",
        "fds",
        "bsam",
        "regularizer",
    ),
}
SOURCE = (
    r"\[([^]]+)\]\(\.\./(?:configs|datasets|engine|losses|metrics|models|scripts|tests)/[^)]*\)"
)
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
COLAB = "https://colab.research.google.com/github/{}/blob/main/docs/tutorial.ipynb"


def on_files(files, config):
    root = Path(config.config_file_path).parent
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=(root / source).read_text()))
    for path in [*root.glob("results/*.*"), *root.glob("results/figures/*")]:
        uri = path.relative_to(root).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    script = str(root / "docs/site/iframe-worker.js")
    files.append(File.generated(config, "assets/iframe-worker.js", abs_src_path=script))
    for name, modules in REFERENCE.items():
        package = f"losses.{name}" if name == "regularizers" else name
        lines = [f"# {name.capitalize()}", ""]
        lines += [
            f"::: {package}.{module}\n" for module in modules if _exists(root, package, module)
        ]
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(lines)))
    return files


def on_page_markdown(markdown, page, **_):
    """Make links relative to the site, where the pages of docs/ are at the top."""
    uri = page.file.src_uri
    if uri in PAGES.values():
        markdown = markdown.replace("](docs/", "](")
    elif uri.startswith("results/"):
        markdown = markdown.replace("](../docs/", "](../")
    else:
        markdown = re.sub(SOURCE, r"\1", markdown).replace("](../", "](")
    repository = os.environ.get("GITHUB_REPOSITORY")
    if uri == "index.md" and repository:
        badge = f" [![Open in Colab]({BADGE})]({COLAB.format(repository)})"
        markdown = re.sub(r"(\[tutorial\]\(tutorial\.ipynb\))", rf"\1{badge}", markdown)
    return markdown


def _exists(root, package, module):
    path = root.joinpath(*package.split("."), module)
    return path.with_suffix(".py").is_file() or path.is_dir()
