"""Sphinx extension of the book: executed notebooks, the provenance page, and a site that needs no other host.

- A notebook's page is made from its executed copy; a missing or outdated copy is a warning, so an error under -W.
- Provenance, results and the like get their tables when they are read.
- MathJax is copied into the site from an installed package, and scripts that fetch from elsewhere are left out.
"""

from __future__ import annotations

import importlib.resources
import json
import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.util import logging

import execute
import site_assets
import site_cite
import site_results
import site_runs
import site_viewer
from dobrushin import results

MATHJAX = ("es5/tex-mml-chtml.js", "es5/output/chtml/fonts", "es5/input/tex/extensions", "LICENSE")
FONT_SCRIPT = re.compile(r'<script defer src="[^"]*/fontawesome\.js[^"]*"></script>')
"""Half a megabyte that draws the icons a second time: the style sheet has them as a font."""
FIRST_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title><link rel="icon" href="data:,">
<meta http-equiv="refresh" content="0; url={page}"></head>
<body><main><h1><a href="{page}">{title}</a></h1></main></body>
</html>
"""
"""What stands at the root of the site: the way to its first page."""
FILLED = ("book/provenance", "book/rerun", "book/viewer", "book/results", "book/cite")
"""Pages with tables that the build makes."""
logger = logging.getLogger(__name__)


def read_executed(app: Any, docname: str, source: list[str]) -> None:
    """Show the executed copy of a notebook in place of the notebook itself."""
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".ipynb":
        return
    copy = execute.EXECUTED / path.name
    app.env.note_dependency(str(copy))
    if why := execute.fault(copy):
        logger.warning(why, location=docname)
    else:
        document = json.loads(copy.read_text(encoding="utf-8"))
        site_assets.drop_points(document)
        document["cells"].append(site_runs.run_this(path.stem, document["metadata"]["dobrushin"]))
        source[0] = json.dumps(document)


def read_provenance(app: Any, docname: str, source: list[str]) -> None:
    """Fill the pages that say where numbers come from."""
    if docname == "book/provenance":
        filled = source[0].replace("{{ runs }}", site_runs.runs()).replace("{{ results }}", site_runs.listed(results.RESULTS))
        source[0] = filled.replace("{{ examples }}", site_runs.listed(site_assets.EXAMPLES))
    if docname == "book/rerun":
        source[0] = source[0].replace("{{ chapters }}", site_runs.chapters())
    if docname == "book/viewer":
        source[0] = site_viewer.page(source[0])
    if docname == "book/results":
        source[0] = site_results.page(source[0])
    if docname == "book/cite":
        source[0] = site_cite.page(source[0])


def outdated(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Pages to read again whatever their own files say: those that the build fills, and notebooks whose copy is not valid."""
    found = {name for name in env.found_docs if name.startswith("notebooks/")}
    invalid = [name for name in found if execute.fault(execute.EXECUTED / f"{Path(name).name}.ipynb")]
    return [*invalid, *(name for name in FILLED if name in env.found_docs)]


def drop_scripts(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Leave sphinx-thebe out: live cells need a server elsewhere, and its script fails on pages without them."""
    for kind in ("script_files", "css_files"):
        context[kind] = [
            file for file in context.get(kind, []) if "thebe" not in f"{file} {getattr(file, 'attributes', '')}".lower()
        ]


def copy_mathjax(app: Any, failure: Exception | None) -> None:
    """Copy MathJax and its fonts into the finished site."""
    if failure or app.builder.format != "html":
        return
    source = Path(str(importlib.resources.files("mathjax"))) / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    for name in MATHJAX:
        to = target / name.removeprefix("es5/")
        to.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, to, dirs_exist_ok=True)
        else:
            shutil.copy2(source / name, to)


def mend_pages(app: Any, failure: Exception | None) -> None:
    """Take out of the finished pages what the theme does wrong and no setting changes."""
    if failure or app.builder.name != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        mended = FONT_SCRIPT.sub("", text).replace('<div role="list" class="citation-list">', '<div class="citation-list">')
        if mended != text:
            page.write_text(mended, encoding="utf-8")
    (Path(app.outdir) / "index.html").write_text(
        FIRST_PAGE.format(title=app.config.html_title, page="book/index.html"), encoding="utf-8"
    )


def write_data(app: Any, failure: Exception | None) -> None:
    """Write the scripts that hold data into the finished site."""
    if not failure and app.builder.format == "html":
        site_assets.write(Path(app.outdir))


def setup(app: Any) -> dict[str, bool]:
    """Register the extension."""
    app.connect("source-read", read_executed)
    app.connect("source-read", read_provenance)
    app.connect("env-get-outdated", outdated)
    app.connect("html-page-context", drop_scripts, priority=900)
    app.connect("html-page-context", site_assets.add_to_page)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", write_data)
    app.connect("build-finished", mend_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
