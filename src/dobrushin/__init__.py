r"""When is the Dobrushin bound on attention rollout tight?

The package decides, exactly for the matrix as stored, whether
:math:`\kappa(\tfrac12(I+A)) \le \tfrac12(1+\kappa(A))` is an equality for an attention matrix A, and measures how
often it is for the attention of trained transformers.  Companion of P. Rola, "An equality condition for the
Dobrushin bound on attention rollout and how often it holds in trained transformers", arXiv:2610.05558.
"""

from dobrushin.bounds import Doeblin, doeblin, leave_one_out
from dobrushin.coefficient import coefficient, pairwise_tv
from dobrushin.equality import Equality, equality
from dobrushin.random import LAWS, baseline, random_stochastic, wilson_interval
from dobrushin.robustness import radius, row_distance
from dobrushin.rollout import layer_bound, rollout
from dobrushin.stochastic import check_stochastic, lazy, restrict

__all__ = [
    "LAWS",
    "Doeblin",
    "Equality",
    "baseline",
    "check_stochastic",
    "coefficient",
    "doeblin",
    "equality",
    "layer_bound",
    "lazy",
    "leave_one_out",
    "pairwise_tv",
    "radius",
    "random_stochastic",
    "restrict",
    "rollout",
    "row_distance",
    "wilson_interval",
]
