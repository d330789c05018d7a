"""The built site in a real browser: every page, at three widths, light and dark, by http under a sub-path and from file://."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pandas as pd
import pytest
from bs4 import BeautifulSoup

import site_viewer
from dobrushin import show
from dobrushin.catalogue import catalogue

SITE = Path(__file__).parents[1] / "_build" / "html"
BASE = "/some/path/"
WIDTHS = (390, 768, 1440)
NUMBERS = re.compile(r"−?\d+(?:\.\d+)?(?:e[+−]\d+)?")
LARGEST_PAGE = 1_000_000
"""Bytes, compressed, that a page may cost without the plotting library."""
PAGES = sorted(
    str(path.relative_to(SITE))
    for path in SITE.rglob("*.html")
    if path.relative_to(SITE).parts[0] not in ("_static", "_downloads")
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_site = pytest.mark.skipif(not PAGES, reason="the site is not built; run: make book")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; on Debian: apt-get install chromium")
pytestmark = needs_site


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site below BASE and nothing else."""

    def translate_path(self, path):
        clean = unquote(urlsplit(path).path)
        return str(SITE / clean.removeprefix(BASE)) if clean.startswith(BASE) else str(SITE / "not-there")

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def base():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}{BASE}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": WIDTHS[0], "height": 900}, color_scheme="light")
    page = context.new_page()
    page.faults, page.loaded = [], []
    page.on("console", lambda message: message.type == "error" and page.faults.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: page.faults.append(f"script: {error}"))
    page.on("requestfailed", lambda request: page.faults.append(f"not loaded: {request.url}"))
    page.on("response", lambda answer: answer.status >= 400 and page.faults.append(f"{answer.status}: {answer.url}"))
    page.on("request", lambda request: page.loaded.append(request.url))
    yield page
    context.close()


def settled(page, url):
    """Open a page and wait until its formulas are set."""
    page.goto(url)
    page.wait_for_function("!document.querySelector('.math') || (window.MathJax?.startup?.promise !== undefined)")
    page.evaluate("window.MathJax?.startup?.promise")


def violations(page, **options) -> list[str]:
    """What axe-core finds; formulas are left out, whose thousands of nodes are MathJax's own."""
    from axe_playwright_python.sync_playwright import Axe

    # Without preload: axe would fetch what style sheets import, relative to the page, from where it is not.
    options |= {"preload": False, "resultTypes": ["violations"]}
    found = Axe().run(page, context={"exclude": [["mjx-container"]]}, options=options).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}" for one in serious for node in one["nodes"][:3]]


def compressed(url: str, base: str) -> int:
    path = SITE / unquote(urlsplit(url).path).removeprefix(urlsplit(base).path)
    return len(gzip.compress(path.read_bytes()))


@needs_chromium
@pytest.mark.parametrize("name", PAGES)
def test_page(page, base, name):
    settled(page, base + name)
    faults = page.faults
    own = {url for url in page.loaded if url.startswith(base)}
    faults += [f"from another host: {url}" for url in set(page.loaded) - own if not url.startswith(("data:", "blob:"))]
    weight = sum(compressed(url, base) for url in own if "plotly" not in url)
    if weight > LARGEST_PAGE:
        faults.append(f"{weight} bytes compressed")
    faults += [f"bad LaTeX: {text}" for text in page.locator("mjx-merror, [data-mjx-error]").all_inner_texts()]
    without_text = "img:not([alt]), img[alt=''], svg[role=img]:not([aria-label], [aria-labelledby], [aria-hidden=true])"
    faults += [
        f"no alt text: {html[:200]}"
        for html in page.locator(f"main :is({without_text})").evaluate_all("all => all.map(e => e.outerHTML)")
    ]
    # Every width in both themes; all of axe-core's rules on a phone, and where the theme matters again on a wide screen.
    for scheme, widths, rules in (("light", reversed(WIDTHS), {}), ("dark", WIDTHS, {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme)
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                faults.append(f"{wide} px wide at {width} px, {scheme}")
        faults += [f"{scheme}: {fault}" for fault in violations(page, **rules)]
    assert not faults, "\n".join(map(str, faults))


@functools.cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    here = (SITE / name).as_uri()
    attributes = [("a", "href"), ("link", "href"), ("img", "src"), ("script", "src")]
    targets = {tag[key] for kind, key in attributes for tag in parsed(SITE / name).find_all(kind) if tag.get(key)}
    missing = []
    for target in sorted(targets):
        url, fragment = urldefrag(urljoin(here, target))
        if urlsplit(url).scheme != "file":
            continue
        path = Path(unquote(urlsplit(url).path))
        if not path.is_file():
            missing.append(f"{target}: no such file")
        elif fragment and path.suffix == ".html" and not fragment.startswith(("A=", "see=")):
            page = parsed(path)
            if not page.find(id=unquote(fragment)) and not page.find(attrs={"name": unquote(fragment)}):
                missing.append(f"{target}: no such place")
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("name", PAGES)
def test_no_path_of_this_machine(name):
    assert str(SITE.parents[1]) not in (SITE / name).read_text(encoding="utf-8")


@needs_chromium
@pytest.mark.parametrize("words", ["Dobrushin", "equality condition", "self-dominant"])
def test_search_finds_the_theorem(page, base, words):
    page.goto(f"{base}search.html?q={words}")
    page.wait_for_selector("#search-results li a")
    assert any(
        "01_theorem.html" in link for link in page.locator("#search-results a").evaluate_all("all => all.map(a => a.href)")
    )
    assert not page.faults


@needs_chromium
@pytest.mark.parametrize(
    ("name", "shown"),
    {
        "index.html": "mjx-container",
        "notebooks/01_theorem.html": "mjx-container",
        "notebooks/03_minilm.html": ".answering svg",
        "book/explorer.html": ".explorer-pairs td",
        "book/viewer.html": ".viewer-rows figure",
        "book/results.html": ".results-bar",
    }.items(),
)
def test_works_from_files(page, name, shown):
    page.goto((SITE / name).as_uri())
    page.wait_for_selector(shown)
    assert not page.faults
    assert all(url.startswith(("file:", "data:", "blob:")) for url in page.loaded)


# The explorer

TIED = "#A=0,0.1,0.9;0,0.7,0.3;0.5,0.2,0.3"


def verdict(page) -> str:
    return page.locator("[data-part=verdict]").get_attribute("data-verdict")


@needs_chromium
def test_the_address_holds_the_matrix(page, base):
    page.goto(f"{base}book/explorer.html{TIED}")
    assert verdict(page) == "holds"
    assert page.locator("[data-part=stored]").get_attribute("data-holds") == "false"  # the tie that floats break
    page.get_by_label("row 1, column 3").fill("0.8")
    assert verdict(page) == "none"
    assert "Row 1 sums to 9/10 = 0.9, not to 1." in page.locator("[data-part=faults]").inner_text()
    page.get_by_role("button", name="Rescale row 1").click()
    assert verdict(page) != "none"
    assert page.url.endswith("#A=0,1/9,8/9;0,0.7,0.3;0.5,0.2,0.3")
    page.reload()
    assert page.get_by_label("row 1, column 3").input_value() == "8/9"
    assert not page.faults


@needs_chromium
@pytest.mark.parametrize("address", ["#A=1,0;0", "#A=", "#A=%ZZ,1;1,0", "#A=1", "#nonsense"])
def test_a_bad_address_shows_the_example(page, base, address):
    page.goto(f"{base}book/explorer.html{address}")
    assert verdict(page) == "fails"
    assert page.locator("[data-part=kappa]").inner_text() == "5/8 = 0.625"
    assert not page.faults


@needs_chromium
def test_keyboard_only(page, base):
    page.goto(f"{base}book/explorer.html#A=1,0;0,1")
    page.get_by_label("row 1, column 1").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.ariaLabel") == "row 2, column 2"
    page.keyboard.press("Alt+ArrowDown")
    assert page.url.endswith("#A=1,0;0.01,0.99")
    page.keyboard.press("Tab")
    page.get_by_label("row 1, column 1").focus()
    page.keyboard.type("x")
    assert verdict(page) == "none"
    assert "“x” is no number" in page.locator("[data-part=faults]").inner_text()
    page.keyboard.press("Control+a")
    page.keyboard.type("1")
    page.wait_for_function("document.querySelector('[data-part=announced]').textContent.startsWith('Equality')")


@needs_chromium
def test_every_example_gives_a_verdict_at_any_size(page, base):
    page.goto(f"{base}book/explorer.html")
    for size in "238":
        for button in page.locator("[data-part=presets] button").all():
            page.locator("[data-part=size]").select_option(size)
            button.click()
            assert verdict(page) in ("holds", "fails")
    for option in page.locator("[data-part=real] option").all()[1:]:
        page.locator("[data-part=real]").select_option(option.get_attribute("value"))
        note = page.locator("[data-part=note]").inner_text()
        assert "all-MiniLM-L6-v2" in note
        assert ("holds" in note) == (verdict(page) == "holds")
    assert not page.faults


@needs_chromium
def test_dragging_keeps_the_row_stochastic(page, base):
    page.goto(f"{base}book/explorer.html#A=0.2,0.3,0.5;0,1,0;0,0,1")
    box = page.get_by_label("row 1, column 1").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 20, steps=5)
    page.mouse.up()
    values = [page.get_by_label(f"row 1, column {k}").input_value() for k in (1, 2, 3)]
    assert values == ["0.4", "0.225", "0.375"]
    assert verdict(page) != "none"


# The viewer of single inputs


@needs_chromium
def test_the_viewer_shows_what_the_address_says(page, base):
    page.goto(f"{base}book/viewer.html#see=sentences-3,4")
    page.wait_for_selector(".viewer-rows figure")
    table, how = site_viewer.groups()["sentences"]
    row = table[(table["example"] == 2) & (table["layer"] == 4)].to_dict("records")[0]
    shown = page.locator(".viewer-values").inner_text()
    for name in ("kappa", "lazy_kappa", "margin", "A_ii", "A_ji", "A_jj", "A_ij"):
        assert any(float(word.replace("−", "-")) == pytest.approx(row[name], rel=1e-3) for word in NUMBERS.findall(shown)), name
    assert page.locator(".viewer-verdict").get_attribute("data-verdict") == ("holds" if row["holds"] else "fails")
    pair = [page.locator(f".viewer-rows figure:nth-child({k}) .own").inner_text() for k in (1, 2)]
    assert pair == [how["examples"][2]["tokens"][row[k]] for k in "ij"]
    page.get_by_role("radio", name="layer 5").check(force=True)
    assert page.url.endswith("#see=sentences-3,5")
    page.get_by_label("Input").select_option(index=0)
    page.wait_for_function("location.hash === '#see=sentences-1,5'")
    assert not page.faults


@needs_chromium
def test_the_viewer_with_the_keyboard(page, base):
    page.goto(f"{base}book/viewer.html#see=sentences-1,1")
    heat_map = page.get_by_role("application")
    heat_map.focus()
    for key in ("Home", "Home", "ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
    table, how = site_viewer.groups()["sentences"]
    row = table[(table["example"] == 0) & (table["layer"] == 1)].to_dict("records")[0]
    i, tokens = row["i"], how["examples"][0]["tokens"]
    said = page.locator(".viewer-asked").inner_text()
    assert f"“{tokens[i + 1]}” ({i + 2})" in said
    assert f"“{tokens[i - 1]}” ({i})" in said
    assert float(said.split(": ")[1].rstrip(".")) == pytest.approx(show.weights(row)[i + 1, i - 1], rel=1e-3)
    page.get_by_role("radio", name="layer 1").focus()
    page.keyboard.press("ArrowRight")
    assert page.url.endswith("#see=sentences-1,2")
    assert not page.faults


@needs_chromium
@pytest.mark.parametrize("address", ["#see=nothing-1,1", "#see=sentences-1,99", "#see=", "#nonsense"])
def test_a_bad_address_shows_an_example(page, base, address):
    page.goto(f"{base}book/viewer.html{address}")
    page.wait_for_selector(".viewer-rows figure")
    assert page.locator(".viewer-layers input:checked").count() == 1
    assert not page.faults


@needs_chromium
def test_every_example_can_be_seen(page, base):
    page.goto(f"{base}book/viewer.html")
    page.wait_for_selector(".viewer-rows figure")
    for name, (table, how) in site_viewer.groups().items():
        for k, example in enumerate(how["examples"]):
            layers = table.loc[table["example"] == k, "layer"].max()
            page.evaluate(f"location.hash = '#see={name}-{k + 1},{layers}'")
            page.wait_for_function(f"document.querySelectorAll('.viewer-layers input').length === {layers}")
            page.wait_for_function(f"document.querySelector('.viewer-bar label:nth-child(2) select').value === '{name}-{k + 1}'")
            assert page.locator(".viewer-map canvas").get_attribute("width") == str(len(example["tokens"]))
    assert not page.faults


# Figures that can be asked


@needs_chromium
def test_a_figure_answers(page, base):
    page.goto(f"{base}notebooks/03_minilm.html")
    points = json.loads(page.locator("script[data-figure=fig-minilm-layers]").inner_text())
    words = [point["words"] for series in points["panels"][0]["series"] for point in series["points"]]
    chart = page.locator("#fig-minilm-layers svg[role=application]").first
    chart.focus()
    tip = page.locator("#fig-minilm-layers .answering-tip")
    for press, expected in (("ArrowRight", words[0]), ("ArrowRight", words[1]), ("ArrowLeft", words[0])):
        page.keyboard.press(press)
        assert tip.inner_text() == expected
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    assert not page.locator("#fig-minilm-layers img").is_visible()
    before = chart.locator("polyline").count()
    series = page.locator("#fig-minilm-layers .answering-legend button").first
    series.click()
    assert series.get_attribute("aria-pressed") == "false"
    assert page.locator("#fig-minilm-layers svg[role=application]").first.locator("polyline").count() == before - 1
    page.emulate_media(media="print")
    assert page.locator("#fig-minilm-layers img").is_visible()
    assert not page.faults


# Downloads


@needs_chromium
def test_all_results_can_be_downloaded(page, base, tmp_path):
    page.goto(f"{base}book/results.html")
    ours = catalogue()
    for ending, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        with page.expect_download() as waiting:
            page.locator(f"main a[download][href$='.{ending}']").click()
        waiting.value.save_as(tmp_path / f"table.{ending}")
        table = read(tmp_path / f"table.{ending}")
        assert list(table.columns) == list(ours.columns)
        assert len(table) == len(ours) == page.locator(".results-table tbody tr").count()
        assert table["share"].round(12).equals(ours["share"].astype(float).round(12))
