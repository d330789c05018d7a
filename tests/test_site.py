"""The built site, read without a browser: whole, from this host alone, with no fault printed on a page."""

from __future__ import annotations

import copy
import functools
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup

import execute
from dobrushin import results

ROOT = Path(__file__).parents[1]
SITE = ROOT / "_build" / "html"
CHAPTERS = execute.notebooks()
LISTED = [chapter["file"] for part in yaml.safe_load((ROOT / "_toc.yml").read_text())["parts"] for chapter in part["chapters"]]
PAGES = ["book/index", *LISTED]
EXTERNAL = re.compile(r"^(?:https?:)?//")

pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built; run: make book")
every_page = pytest.mark.parametrize("name", PAGES)
every_chapter = pytest.mark.parametrize("notebook", CHAPTERS, ids=[notebook.stem for notebook in CHAPTERS])


@functools.cache
def page(name: str) -> BeautifulSoup:
    return BeautifulSoup((SITE / f"{name}.html").read_text(encoding="utf-8"), "html.parser")


def article(name: str):
    return page(name).find("article") or page(name).find("main")


# --- every page -------------------------------------------------------------------------------------------------


@every_page
def test_nothing_is_loaded_from_another_host(name):
    loads = dict.fromkeys(("script", "img", "source", "iframe", "video", "audio", "embed"), "src") | {"object": "data"}
    found = [tag[key] for kind, key in loads.items() for tag in page(name).find_all(kind) if EXTERNAL.match(tag.get(key) or "")]
    fetched = {"stylesheet", "preload", "icon", "modulepreload", "preconnect", "dns-prefetch", "manifest"}
    found += [tag["href"] for tag in page(name).find_all("link") if fetched & set(tag["rel"]) and EXTERNAL.match(tag["href"])]
    styles = [tag.get_text() for tag in page(name).find_all("style")] + [tag["style"] for tag in page(name).find_all(style=True)]
    found += [url for style in styles for url in re.findall(r"url\(['\"]?((?:https?:)?//[^)]*)", style)]
    assert not found


def test_no_style_sheet_loads_from_another_host():
    sheets = list(SITE.rglob("*.css"))
    assert sheets
    text = {sheet: sheet.read_text(encoding="utf-8") for sheet in sheets}
    found = {s.name: re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^)'\"]*)", t) for s, t in text.items()}
    assert not {name: urls for name, urls in found.items() if urls}
    for sheet, content in text.items():
        for url in re.findall(r"url\(['\"]?(?!data:|#)([^)'\"?#]+)", content):
            if sheet.parent.name != "mathjax":
                assert (sheet.parent / url).is_file(), f"{sheet.name}: {url}"


@every_page
def test_a_page_has_a_title_a_heading_and_a_language(name):
    assert page(name).html["lang"] == "en"
    assert page(name).title.get_text().strip()
    assert len(article(name).find_all("h1")) == 1
    levels = [int(tag.name[1]) for tag in article(name).find_all(re.compile("^h[1-6]$"))]
    assert all(below <= above + 1 for above, below in pairwise(levels)), levels


@every_page
def test_no_fault_is_printed(name):
    boxes = article(name).select(".output.stderr, .output.traceback, .system-message, .problematic, .papermill-error-cell-tag")
    assert not [box.get_text()[:200] for box in boxes]
    text = article(name).get_text()
    for fault in ("Traceback (most recent call last)", "Error:", "Warning:", "An Exception was encountered"):
        assert fault not in text


@every_page
def test_no_markup_and_no_missing_value_is_left(name):
    read = copy.copy(article(name))
    for box in read.select("pre, code, script, .math, template, dl"):
        box.extract()
    text = read.get_text(" ")
    assert not re.findall(r"\{\{.*?\}\}|\{[\w:]+\}`|```|~~~|\]\(|\\begin\{|\[\?+\]|\*\*\w|<[a-z]+ [a-z]+=", text)
    assert not re.findall(r"\b(?:nan|NaN|NaT)\b", text)
    missing = {"None", "inf", "-inf", "<NA>", "True", "False"}
    assert not [cell for cell in read.find_all("td") if cell.get_text().strip() in missing]


@every_page
def test_every_picture_has_words(name):
    for picture in article(name).find_all("img"):
        assert picture.get("alt", "").strip(), picture.get("src")
    for figure in article(name).find_all("figure"):
        assert figure.find("figcaption"), figure.get("id")


def test_every_page_is_found_by_the_search():
    index = (SITE / "searchindex.js").read_text(encoding="utf-8")
    names = json.loads(re.search(r'"?docnames"?:\s*(\[.*?\])', index)[1])
    assert set(PAGES) <= set(names)


def test_pages_that_are_not_listed_do_not_exist():
    pages = [path for folder in ("book", "notebooks") for path in (SITE / folder).rglob("*.html")]
    built = {str(path.relative_to(SITE).with_suffix("")) for path in pages}
    assert built == set(PAGES)


# --- chapters ---------------------------------------------------------------------------------------------------


@every_chapter
def test_a_chapter_shows_all_its_figures_under_their_names(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    named = [cell["metadata"]["mystnb"] for cell in cells if "figure" in cell["metadata"].get("mystnb", {})]
    shown = article(f"notebooks/{notebook.stem}")
    for one in named:
        figure = shown.find(id=one["figure"]["name"])
        assert figure is not None, one["figure"]["name"]
        assert figure.find("img")["alt"] == one["image"]["alt"]
    assert len(shown.find_all("figure")) >= len(named)


@every_chapter
def test_a_chapter_was_executed_from_this_source(notebook):
    executed = execute.EXECUTED / notebook.name
    if not executed.exists():
        pytest.skip("the notebooks are not executed; run: make book")
    assert execute.fault(executed) is None
    cells = [cell for cell in json.loads(executed.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert "error" not in kinds


@every_chapter
def test_a_chapter_ends_with_how_to_run_it(notebook):
    box = article(f"notebooks/{notebook.stem}").select(".run-this")
    assert len(box) == 1
    assert f"papermill notebooks/{notebook.name}" in box[0].get_text()


# --- where numbers come from ------------------------------------------------------------------------------------


def test_the_provenance_page_names_every_run_and_every_result():
    text = " ".join(article("book/provenance").get_text(" ").split())
    for notebook in CHAPTERS:
        assert notebook.stem in text
        how = execute.record(execute.EXECUTED / notebook.name)
        if how is not None:
            assert how["key"][:12] in text
            assert how["commit"][:12] in text
    for beside in sorted(results.RESULTS.glob("*.json")):
        how = json.loads(beside.read_text(encoding="utf-8"))
        assert article("book/provenance").find(id=f"result-{beside.stem}") is not None
        assert how["command"] in text
        assert how["table"]["sha256"][:12] in text


def test_every_result_can_be_downloaded():
    offered = {path.name for path in (SITE / "_downloads").rglob("*.parquet")}
    assert {path.name for path in results.RESULTS.glob("*.parquet")} <= offered
