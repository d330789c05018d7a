"""The explorer's arithmetic, in JavaScript, against exact rationals and against the package's verdicts."""

from __future__ import annotations

import json
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import oracle
from dobrushin import equality
from dobrushin.equality import tv_error
from strategies import any_matrix, ratio_row

EXACT = Path(__file__).parents[1] / "book" / "_static" / "explorer" / "exact.js"
RUN = """
require(process.argv[1]);
const D = globalThis.Dobrushin;
const text = ({ p, q }) => `${p}/${q}`;
const number = (t) => { const [p, q] = t.split("/").map(BigInt); return D.fraction(p, q); };
const tasks = {
  judge: (rows) => {
    const v = D.judge(rows.map((row) => row.map(number)));
    return { kappa: text(v.kappa), lazyKappa: text(v.lazyKappa), gap: text(v.gap), holds: v.holds, pair: [v.pair.i, v.pair.j],
      attaining: v.pairs.filter((p) => p.attains).map((p) => [p.i, p.j]), deficits: v.pairs.map((p) => text(p.deficit)) };
  },
  parse: (typed) => { try { return text(D.parse(typed)); } catch (error) { return { message: error.message }; } },
  double: (t) => D.toDouble(number(t)),
  stored: (x) => text(D.fromDouble(x)),
  type: (t) => text(D.parse(D.type(number(t)))),
  show: (t) => D.show(number(t)),
};
const { task, cases } = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map(tasks[task])));
"""


def explorer(task: str, cases: list) -> list:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; on Debian and Ubuntu: apt-get install nodejs")
    run = subprocess.run(
        [node, "-e", RUN, str(EXACT)],
        input=json.dumps({"task": task, "cases": cases}),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def as_text(matrix) -> list[list[str]]:
    return [[f"{x.numerator}/{x.denominator}" for x in map(Fraction, row)] for row in matrix]


def generated(strategy, number: int) -> list:
    found = []

    @settings(max_examples=number)
    @given(strategy)
    def collect(example):
        found.append(example)

    collect()
    return found


@pytest.fixture(scope="module")
def stored() -> list[np.ndarray]:
    return generated(any_matrix(8), 2000)


def test_verdicts_are_those_of_the_package(stored):
    verdicts = explorer("judge", [as_text(A.tolist()) for A in stored])
    ours = [equality(A) for A in stored]
    assert {v.holds for v in ours} == {True, False}
    for A, theirs, v in zip(stored, verdicts, ours, strict=True):
        assert theirs["holds"] == v.holds
        assert tuple(theirs["pair"]) == v.pair
        for name, value in (("kappa", v.kappa), ("lazyKappa", v.lazy_kappa), ("gap", v.gap)):
            assert abs(Fraction(theirs[name]) - Fraction(value)) <= 3 * tv_error(len(A))  # of the package's floats


def test_values_are_the_exact_ones(stored):
    rational = generated(ratio_row(3), 200)
    exact = [oracle.exact(A) for A in stored[:600]]
    exact += [
        [[Fraction(x).limit_denominator(9) for x in row] for row in rows]
        for rows in zip(rational, rational[1:], rational[2:], strict=False)
    ]
    for F, theirs in zip(exact, explorer("judge", [as_text(F) for F in exact]), strict=True):
        pairs = [(i, j) for i in range(len(F)) for j in range(i + 1, len(F))]
        kappa, lazy = oracle.kappa(F), oracle.kappa(oracle.lazy(F))
        assert (Fraction(theirs["kappa"]), Fraction(theirs["lazyKappa"])) == (kappa, lazy)
        assert Fraction(theirs["gap"]) == (1 + kappa) / 2 - lazy
        assert theirs["holds"] == (2 * lazy == 1 + kappa)
        assert [tuple(p) for p in theirs["attaining"]] == [p for p in pairs if oracle.tv(F, *p) == kappa]
        assert list(map(Fraction, theirs["deficits"])) == [
            (max(F[j][i] - F[i][i], 0) + max(F[i][j] - F[j][j], 0)) / 2 for i, j in pairs
        ]


TIE = [["0", "0.1", "0.9"], ["0", "0.7", "0.3"], ["0.5", "0.2", "0.3"]]
"""As typed, two pairs attain 3/5 and one of them is mutually self-dominant; as floats the tie is broken."""


def test_typed_decimals_are_exact_so_ties_are():
    typed = [explorer("parse", row) for row in TIE]
    as_typed, as_floats = explorer("judge", [typed, as_text([[float(text) for text in row] for row in TIE])])
    assert len(as_typed["attaining"]) > len(as_floats["attaining"])
    assert as_typed["holds"]
    assert as_floats["holds"] == equality(np.array(TIE, dtype=float)).holds is False


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1/3", Fraction(1, 3)), (" 2 / 6 ", Fraction(1, 3)), ("0,25", Fraction(1, 4)), (".5", Fraction("0.5")), ("1.", 1),
        ("2e-3", Fraction(1, 500)), ("0.1/0.3", Fraction(1, 3)), ("-0", Fraction(0)), ("1e-320", Fraction(1, 10**320)),
    ],
)  # fmt: skip
def test_what_can_be_typed(typed, value):
    assert Fraction(explorer("parse", [typed])[0]) == value


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "the cell is empty"), ("a", "“a” is no number; type a decimal such as 0.25"), ("-0.1", "-0.1 is negative"),
        ("1.5", "1.5 is more than 1"), ("1/0", "divides by zero"), ("1/2/3", "is no number"), (".", "is no number"),
        ("Infinity", "is no number"), ("1e999999999", "is no number"), ("0x1", "is no number"),
    ],
)  # fmt: skip
def test_what_cannot_be_typed_is_named(typed, message):
    assert message in explorer("parse", [typed])[0]["message"]


def test_rounding_to_double_is_that_of_python():
    rng = np.random.default_rng(0)
    fractions = [Fraction(int(p), int(q)) for q in rng.integers(1, 2**62, 1500) for p in [rng.integers(0, q + 1)]]
    fractions += [
        Fraction(int(p), 2 ** int(e)) for p, e in zip(rng.integers(1, 2**62, 500), rng.integers(62, 1140, 500), strict=True)
    ]
    fractions += [Fraction(2**53 + k, 2**54) for k in range(-4, 5)] + [Fraction(k, 2**1076) for k in range(12)]  # ties to even
    texts = [f"{x.numerator}/{x.denominator}" for x in fractions]
    assert explorer("double", texts) == [x.numerator / x.denominator for x in fractions]
    doubles = [float(x) for x in rng.random(500)] + [5e-324, 2.0**-1022, 1.0, 0.0]
    assert list(map(Fraction, explorer("stored", doubles))) == list(map(Fraction, doubles))


def test_a_rescaled_cell_is_typed_without_loss():
    rng = np.random.default_rng(1)
    texts = [
        f"{x.numerator}/{x.denominator}"
        for q in rng.integers(1, 2000, 400)
        for x in [Fraction(int(rng.integers(0, q + 1)), int(q))]
    ]
    assert explorer("type", texts) == texts


def test_shown_values_are_equal_or_near_as_their_sign_says():
    rng = np.random.default_rng(2)
    fractions = [Fraction(int(rng.integers(1, q)), int(q)) for q in rng.integers(2, 3000, 400)]
    for x, shown in zip(fractions, explorer("show", [f"{x.numerator}/{x.denominator}" for x in fractions]), strict=True):
        exact, sign, number = shown.split(" ")
        assert Fraction(exact) == x
        assert (Fraction(number) == x) if sign == "=" else (0 < abs(Fraction(number) - x) <= Fraction(1, 2 * 10**6))
