"""What the citation files say agrees, and other programs can read it."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import yaml

import site_cite

ROOT = site_cite.CITATION.parent
OWN = yaml.safe_load(site_cite.CITATION.read_text(encoding="utf-8"))


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert OWN["version"] == project["version"]
    assert f"## {OWN['version']} ({OWN['date-released']})" in changelog


def test_citation_file_has_what_the_format_requires():
    assert OWN["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(OWN)
    assert all({"name"} <= set(a) or {"family-names", "given-names"} <= set(a) for a in OWN["authors"])
    assert all({"type", "title", "authors"} <= set(reference) for reference in OWN["references"])


def test_zenodo_says_the_same():
    said = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    assert said["title"] == OWN["title"]
    assert said["keywords"] == OWN["keywords"]
    assert [one["name"] for one in said["creators"]] == [one["name"] for one in OWN["authors"]]
    assert said["related_identifiers"][0]["identifier"] == OWN["references"][0]["identifiers"][0]["value"]


@pytest.mark.parametrize("name", ["paper.bib", "companion.bib"])
def test_bibtex_is_read_by_pybtex(name):
    from pybtex.database import parse_string

    (entry,) = parse_string(site_cite.entries()[name], "bibtex").entries.values()
    expected = OWN["references"][0] if name == "paper.bib" else OWN
    assert entry.fields["title"] == expected["title"]
    assert len(entry.persons["author"]) == 1


def test_the_bibliography_has_the_same_paper():
    from pybtex.database import parse_file, parse_string

    (entry,) = parse_string(site_cite.entries()["paper.bib"], "bibtex").entries.values()
    listed = parse_file(str(ROOT / "book" / "references.bib")).entries["rola2026"]
    for field in ("title", "year", "eprint"):
        assert re.sub("[{}]", "", listed.fields[field]) == entry.fields[field]


@pytest.mark.parametrize("name", ["paper.ris", "companion.ris"])
def test_ris_has_tagged_lines_from_type_to_end(name):
    lines = site_cite.entries()[name].splitlines()
    assert all(re.fullmatch(r"[A-Z][A-Z0-9]  - .*", line) for line in lines)
    assert (lines[0][:2], lines[-1]) == ("TY", "ER  - ")
