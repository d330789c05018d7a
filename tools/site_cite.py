"""How to cite: BibTeX and RIS of the paper and of this companion, made from CITATION.cff."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dobrushin import results

RIS_END = "ER  - "
CITATION = results.PAPER.parents[1] / "CITATION.cff"


def _arxiv(paper: dict[str, Any]) -> str:
    return next(one["value"].removeprefix("arXiv:") for one in paper["identifiers"] if one["value"].startswith("arXiv:"))


def entries() -> dict[str, str]:
    """File name to content."""
    own = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    paper = own["references"][0]
    author = ", ".join((paper["authors"][0]["family-names"], paper["authors"][0]["given-names"]))
    title, number, year = " ".join(paper["title"].split()), _arxiv(paper), paper["year"]
    released = str(own["date-released"])
    companion = own["authors"][0]["name"]
    return {
        "paper.bib": f"""@misc{{rola2026,
  author = {{{author}}},
  title = {{{title}}},
  year = {{{year}}},
  eprint = {{{number}}},
  archivePrefix = {{arXiv}},
  primaryClass = {{cs.LG}},
  url = {{{paper["url"]}}}
}}
""",
        "paper.ris": f"""TY  - UNPB
AU  - {author}
TI  - {title}
PY  - {year}
M1  - arXiv:{number}
UR  - {paper["url"]}
{RIS_END}
""",
        "companion.bib": f"""@software{{dobrushin2026,
  author = {{{{{companion}}}}},
  title = {{{own["title"]}}},
  year = {{{released[:4]}}},
  version = {{{own["version"]}}},
  note = {{Companion to arXiv:{number}}}
}}
""",
        "companion.ris": f"""TY  - COMP
AU  - {companion}
TI  - {own["title"]}
PY  - {released[:4]}
DA  - {released.replace("-", "/")}
ET  - {own["version"]}
N1  - Companion to arXiv:{number}
{RIS_END}
""",
    }


def page(source: str) -> str:
    """Fill the page."""
    for name, text in entries().items():
        source = source.replace("{{ " + name + " }}", f"```bibtex\n{text}```")
    return source.replace("{{ version }}", str(yaml.safe_load(CITATION.read_text(encoding="utf-8"))["version"]))


def write(target: Path) -> None:
    """Write the files that the page offers."""
    target.mkdir(parents=True, exist_ok=True)
    for name, text in entries().items():
        (target / name).write_text(text, encoding="utf-8")
    (target / CITATION.name).write_bytes(CITATION.read_bytes())
