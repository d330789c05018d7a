"""What the paper's columns leave open: renormalising, rounding, the special tokens' part, and the depth bound itself."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dobrushin.compare import count_text, percent
from dobrushin.results import Measurement
from dobrushin.tables import depth

__all__ = ["depth_bound", "dispersion", "failures_with_special", "restriction"]


def restriction(measured: list[Measurement]) -> pd.DataFrame:
    """The content-token test with rows renormalised and as they are, and how many verdicts rounding could turn.

    Without renormalising the restricted matrix is substochastic, and the verdict is the one of
    :func:`dobrushin.equality.equality` on such a matrix.
    """
    rows = []
    for one in measured:
        parts = [one.table[one.table["scope"] == scope].sort_values(["layer", "input"]) for scope in ("content", "content_raw")]
        normal, raw = (part["holds"].to_numpy() for part in parts)
        rows.append(
            {
                "Model": one.label, "Inputs": one.inputs, "Renormalised": count_text(int(normal.sum()), len(normal)),
                "As it is": count_text(int(raw.sum()), len(raw)), "Verdicts that differ": int((normal != raw).sum()),
                "Fragile": int(parts[0]["fragile"].sum()),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def failures_with_special(measured: list[Measurement]) -> pd.DataFrame:
    """Failures on all tokens: in how many the pair that attains kappa has a special token, and how many the restriction mends.

    A failure is mended if the same input satisfies the condition at the same layer on content tokens; then the pair
    that attains kappa there is the same one, or another.
    """
    rows = []
    for one in measured:
        special = np.concatenate([[role != "content"] * count for role, count in one.how["inputs"]["roles"]])
        of_all = one.table[one.table["scope"] == "all"]
        failing = of_all[~of_all["holds"]]
        pairs = special[failing["i"]] | special[failing["j"]]
        content = one.table[one.table["scope"] == "content"].set_index(["layer", "input"])
        restricted = content.loc[pd.MultiIndex.from_frame(failing[["layer", "input"]])]
        mended = restricted["holds"].to_numpy()
        place = np.flatnonzero(~special)
        other = (place[restricted["i"]] != failing["i"]) | (place[restricted["j"]] != failing["j"])
        rows.append(
            {
                "Model": one.label, "Inputs": one.inputs, "Special tokens": f"{special.sum()} of {len(special)}",
                "Failures on all tokens": f"{len(failing)} of {len(of_all)}", "Special token in the pair": int(pairs.sum()),
                "Mended by the restriction": int(mended.sum()), "through another pair": int((mended & other).sum()),
                "Failures on content tokens": int((~content["holds"]).sum()),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def depth_bound(measured: list[Measurement]) -> pd.DataFrame:
    r"""Medians over inputs of the depth bound, of the product of the factors' own coefficients, and of the rollout's.

    The last column is the mean over inputs of the part of the distance between bound and rollout that is lost in the
    layers, :math:`(b - f)/(b - \kappa)`; the rest is lost in multiplying coefficients instead of matrices.
    """
    rows = []
    for one in measured:
        per_input = depth(one.table)
        lost = (per_input["bound"] - per_input["factors"]) / (per_input["bound"] - per_input["kappa"])
        medians = per_input.groupby("scope")[["bound", "factors", "kappa"]].median()
        parts = lost.groupby(per_input["scope"]).mean()
        for scope in ("content", "all"):
            m = medians.loc[scope]
            rows.append(
                {
                    "Model": one.label, "Inputs": one.inputs, "Tokens": scope, "Depth bound": f"{m['bound']:.3g}",
                    "Product of the factors": f"{m['factors']:.3g}", "κ of the rollout": f"{m['kappa']:.3g}",
                    "Lost in the layers": percent(float(parts[scope])),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def dispersion(measured: list[Measurement], scope: str = "content") -> float:
    r"""How much more the layers' shares vary than if all verdicts of a network were independent, with one chance.

    Pearson's :math:`\chi^2` over its degrees of freedom, pooled over the networks: with n inputs, L layers of which layer l
    satisfies the condition on :math:`k_l`, and p the share of the network, :math:`\sum_l (k_l - np)^2 / (np(1-p))` over
    :math:`L - 1`. It is 1 on average for independent verdicts, and about n if all inputs of a layer agree.

    Raises:
        ValueError: no network whose verdicts differ.
    """
    statistic, freedom = 0.0, 0
    for one in measured:
        counts = one.table[one.table["scope"] == scope].groupby("layer")["holds"].agg(["sum", "size"])
        share = counts["sum"].sum() / counts["size"].sum()
        if 0 < share < 1:
            statistic += float(((counts["sum"] - counts["size"] * share) ** 2 / (counts["size"] * share * (1 - share))).sum())
            freedom += len(counts) - 1
    if not freedom:
        raise ValueError(
            f"all {len(measured)} networks have one verdict throughout in scope {scope!r}; expected some that differ"
        )
    return statistic / freedom
