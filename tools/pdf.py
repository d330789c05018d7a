"""Print the whole book into one PDF: one long page by Sphinx, printed by Chromium.

python tools/pdf.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "singlehtml"
BUILT = SITE / "book" / "index.html"
PAGE = SITE / "whole.html"
"""The page at the root of its site, from where its addresses count."""
PDF = ROOT / "_build" / "dobrushin.pdf"
SCALE = 0.76
"""Of the screen's type size, which is large on paper."""
FOOTER = (
    '<div style="width: 100%; font: 8px sans-serif; text-align: center">'
    '<span class="title"></span> · <span class="pageNumber"></span> / <span class="totalPages"></span></div>'
)


LINKS = """
for (const link of document.querySelectorAll("a[href]")) {
  const url = new URL(link.href);
  if (url.protocol !== "file:") continue;
  if (url.hash && document.getElementById(decodeURIComponent(url.hash.slice(1)))) link.setAttribute("href", url.hash);
  else link.removeAttribute("href");
}
"""
"""Links to pages become links within the file; links to files that are not in it are none."""


def main() -> int:
    """Build the long page and print it; 2 where there is no Chromium."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("Chromium is not installed; on Debian and Ubuntu: apt-get install chromium", file=sys.stderr)
        return 2
    build = [
        str(Path(sys.executable).with_name("jupyter-book")),
        "build",
        str(ROOT),
        "--builder",
        "singlehtml",
        "-W",
        "-n",
        "--quiet",
    ]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    if built.returncode or not BUILT.exists():
        print(built.stdout[-3000:] + built.stderr[-3000:], file=sys.stderr)
        return 1
    shutil.copyfile(BUILT, PAGE)

    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(color_scheme="light")
        failed: list[str] = []
        page.on("requestfailed", lambda request: failed.append(request.url))
        page.route("**/searchindex.js", lambda route: route.fulfill(body=""))  # one page needs no search
        page.goto(PAGE.as_uri())
        page.evaluate("window.MathJax?.startup?.promise")
        page.evaluate(LINKS)
        page.emulate_media(media="print")
        page.pdf(
            path=PDF, format="A4", scale=SCALE, margin={"top": "16mm", "bottom": "18mm", "left": "16mm", "right": "16mm"},
            display_header_footer=True, header_template="<span></span>", footer_template=FOOTER, tagged=True, outline=True,
        )  # fmt: skip
        browser.close()
    if failed:
        print("not found, so not in the PDF:", *failed, sep="\n", file=sys.stderr)
        return 1
    print(PDF)
    return 0


if __name__ == "__main__":
    sys.exit(main())
