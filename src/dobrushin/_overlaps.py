r"""All pairs of rows at once, in 16-bit integers: a filter that leaves few pairs to be looked at in float64.

With q_ik = floor(S a_ik) and Q_i = sum_k q_ik, the distance of two rows of integers is

.. math:: \ell_{ij} = \sum_k |q_{ik} - q_{jk}| = Q_i + Q_j - 2 \sum_k \min(q_{ik}, q_{jk}),

exactly: an entry costs one minimum and one addition, many lanes an instruction.  No sum overflows 16 bits, since a row
sums to at most 1.03 and 1.03 S < 2^16.  Each S a_ik exceeds q_ik by less than 1 (up to the rounding of S a_ik, at most
2^-37), so S |a_ik - a_jk| differs from |q_ik - q_jk| by less than 1 + 2^-36, and for rows of length n

.. math:: \bigl|\ell_{ij} - 2 S\, \mathrm{TV}_{ij}\bigr| < n + 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["LANES", "SCALE", "TILE", "overlaps", "padded", "quantize"]

SCALE = 63488.0
LANES = 16
"""Integers a vector: 256 bits."""
TILE = 3
"""Rows a side of a tile; its 9 sums and 4 operands fit 16 vector registers."""
_BLOCK_BYTES = 262_144  # of rows that stay in the second-level cache while others pass by


@njit(nogil=True, cache=True)
def padded(n):
    """Number of rows and columns of the integer matrix: what is added is 0 and adds nothing to a sum of minima."""
    return -(-n // TILE) * TILE, -(-n // LANES) * LANES


@njit(nogil=True, cache=True)
def quantize(M, q, sums):
    """Fill the first rows and columns of q with floor(S M), and their sums."""
    n = M.shape[0]
    for i in range(n):
        total = np.int32(0)
        for k in range(n):
            v = np.int32(M[i, k] * SCALE)
            q[i, k] = v
            total += v
        sums[i] = total


@intrinsic
def _tile(typing: Any, q: Any, i: Any, j: Any, out: Any) -> Any:
    """out[i + r, j + c] = sum_k min(q[i + r, k], q[j + c, k]) for r, c < TILE, in vectors of LANES integers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        target = context.make_array(signature.args[3])(context, builder, arguments[3])
        index, vector = ir.IntType(64), ir.VectorType(ir.IntType(16), LANES)
        width, stride = builder.extract_value(source.shape, 1), builder.extract_value(target.shape, 1)
        rows, columns = ([builder.add(start, index(k)) for k in range(TILE)] for start in arguments[1:3])
        starts = [[builder.gep(source.data, [builder.mul(r, width)]) for r in side] for side in (rows, columns)]

        before, body, after = builder.block, builder.append_basic_block("columns"), builder.append_basic_block("sums")
        builder.branch(body)
        builder.position_at_end(body)
        k = builder.phi(index)
        sums = [[builder.phi(vector) for _ in columns] for _ in rows]

        def load(start: Any) -> Any:
            value = builder.load(builder.bitcast(builder.gep(start, [k]), vector.as_pointer()))
            value.align = 2
            return value

        left = [load(start) for start in starts[0]]
        grown: list[list[Any]] = [[] for _ in rows]
        for c, start in enumerate(starts[1]):
            right = load(start)
            for r, value in enumerate(left):
                least = builder.select(builder.icmp_unsigned("<", value, right), value, right)
                grown[r].append(builder.add(sums[r][c], least))
        following = builder.add(k, index(LANES))
        k.add_incoming(index(0), before)
        k.add_incoming(following, body)
        for old, new in zip(sums, grown, strict=True):
            for phi, value in zip(old, new, strict=True):
                phi.add_incoming(vector(None), before)
                phi.add_incoming(value, body)
        builder.cbranch(builder.icmp_unsigned("<", following, width), body, after)

        builder.position_at_end(after)
        add_up = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.IntType(16), [vector]), f"llvm.vector.reduce.add.v{LANES}i16"
        )
        for r, row in enumerate(rows):
            for c, column in enumerate(columns):
                place = builder.gep(target.data, [builder.add(builder.mul(row, stride), column)])
                builder.store(builder.call(add_up, [grown[r][c]]), place)
        return context.get_dummy_value()

    return types.void(q, types.intp, types.intp, out), generate


@njit(nogil=True, cache=True)
def overlaps(q, out):
    """Fill the upper triangle of out with sum_k min(q_ik, q_jk); its lower triangle is left with anything."""
    rows = q.shape[0]
    block = max(TILE, _BLOCK_BYTES // (2 * q.shape[1]) // TILE * TILE)
    for first in range(0, rows, block):
        last = min(rows, first + block)
        for i in range(0, last, TILE):
            for j in range(max(i, first), last, TILE):
                _tile(q, i, j, out)
