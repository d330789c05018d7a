"""Eight float64 numbers, of as many matrices, at once: a numba type for a vector of the processor, and its operations.

Loops over few tokens are too short to be turned into vector instructions; loops over matrices are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

__all__ = [
    "LANES",
    "at_least",
    "both",
    "choose",
    "distance",
    "maximum",
    "minimum",
    "minus",
    "plus",
    "read",
    "spread",
    "times",
    "transposed",
    "turn",
    "write",
]

LANES = 8


class _Vector(types.Type):
    def __init__(self, name: str, element: Any) -> None:
        self.vector = ir.VectorType(element, LANES)
        super().__init__(name=f"{LANES} {name}")


_numbers, _truths = _Vector("numbers", ir.DoubleType()), _Vector("truths", ir.IntType(1))


@register_model(_Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _Vector) -> None:
        super().__init__(manager, kind, kind.vector)


def _operation(build: Callable[..., Any], count: int, result: _Vector = _numbers) -> Any:
    """A function of `count` vectors that compiled code can call."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return build(builder, *arguments)

    if count == 3:
        return intrinsic(lambda typing, x, y, z: (result(x, y, z), generate))
    return intrinsic(lambda typing, x, y: (result(x, y), generate))


def _select(builder: Any, comparison: str, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered(comparison, x, y), x, y)


def _distance(builder: Any, x: Any, y: Any) -> Any:
    bits = ir.VectorType(ir.IntType(64), LANES)
    without_sign = builder.and_(builder.bitcast(builder.fsub(x, y), bits), ir.Constant(bits, [2**63 - 1] * LANES))
    return builder.bitcast(without_sign, x.type)


plus = _operation(lambda builder, x, y: builder.fadd(x, y), 2)
minus = _operation(lambda builder, x, y: builder.fsub(x, y), 2)
times = _operation(lambda builder, x, y: builder.fmul(x, y), 2)
distance = _operation(_distance, 2)
maximum = _operation(lambda builder, x, y: _select(builder, ">", x, y), 2)
minimum = _operation(lambda builder, x, y: _select(builder, "<", x, y), 2)
at_least = _operation(lambda builder, x, y: builder.fcmp_ordered(">=", x, y), 2, _truths)
both = _operation(lambda builder, x, y: builder.and_(x, y), 2, _truths)
choose = _operation(lambda builder, truth, x, y: builder.select(truth, x, y), 3)


@intrinsic
def spread(typing: Any, x: Any) -> Any:
    """x in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        nothing = ir.Constant(_numbers.vector, ir.Undefined)
        one = builder.insert_element(nothing, arguments[0], ir.IntType(32)(0))
        return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

    return _numbers(types.float64), generate


def _place(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    start = builder.bitcast(context.make_array(kind)(context, builder, array).data, _numbers.vector.as_pointer())
    return builder.gep(start, [row])


@intrinsic
def read(typing: Any, array: Any, row: Any) -> Any:
    """array[row] of a C-contiguous array of float64 of shape (rows, LANES)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(_place(context, builder, signature.args[0], *arguments))
        value.align = 8
        return value

    return _numbers(array, types.intp), generate


@intrinsic
def write(typing: Any, array: Any, row: Any, value: Any) -> Any:
    """array[row] = value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, row, value = arguments
        builder.store(value, _place(context, builder, signature.args[0], array, row)).align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Columns of a square of as many rows as they are wide, a power of two: interleave its halves log2 times."""
    side = len(rows)
    half, index = side // 2, ir.VectorType(ir.IntType(32), side)
    orders = [ir.Constant(index, [lane for k in range(first, first + half) for lane in (k, side + k)]) for first in (0, half)]
    for _ in range(side.bit_length() - 1):
        rows = [builder.shuffle_vector(rows[k // 2], rows[k // 2 + half], orders[k % 2]) for k in range(side)]
    return rows


@intrinsic
def turn(typing: Any, source: Any, first: Any, column: Any, target: Any) -> Any:
    """target[column + r, l] = source[first + l, column + r] for r, l < LANES."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, first, column, target = arguments
        array = context.make_array(signature.args[0])(context, builder, array)
        width = builder.extract_value(array.shape, 1)
        rows = []
        for lane in range(LANES):
            row = builder.add(first, first.type(lane))
            start = builder.gep(array.data, [builder.add(builder.mul(row, width), column)])
            rows.append(builder.load(builder.bitcast(start, _numbers.vector.as_pointer())))
            rows[-1].align = 8
        for r, value in enumerate(transposed(builder, rows)):
            place = _place(context, builder, signature.args[3], target, builder.add(column, column.type(r)))
            builder.store(value, place).align = 8
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target), generate
