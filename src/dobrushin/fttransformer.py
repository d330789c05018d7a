r"""FT-Transformer for numerical features, and catching the attention of its blocks.

Every feature becomes a token, :math:`t_f = b_f + x_f w_f`, a learned cls token is put before them, and pre-norm
blocks of multi-head attention and ReGLU feed-forward follow; the prediction is read from the cls token.  In the last
block only the cls token asks: its attention has one row, so it has no Dobrushin coefficient.

The authors' package ``rtdl-revisiting-models`` forms the last block for all tokens and drops the rest, and shows its
attention only inside a dropout layer.  This module computes the same outputs from the same weights under the same
names (tests/test_fttransformer.py) in three quarters of the time.

Source: Gorishniy, Rubachev, Khrulkov and Babenko (2021), section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["FTTransformer", "catching_blocks", "measurable_blocks", "parameter_groups"]


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.W_q, self.W_k, self.W_v, self.W_out = (nn.Linear(width, width) for _ in range(4))
        self.weights = nn.Identity()  # where catching_blocks listens
        self.heads, self.p = heads, dropout
        for linear in (self.W_q, self.W_k, self.W_v, self.W_out):
            nn.init.zeros_(linear.bias)

    def forward(self, x_q: Float[Tensor, "b m d"], x_kv: Float[Tensor, "b n d"]) -> Float[Tensor, "b m d"]:
        def split(x: Tensor) -> Tensor:
            return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

        q, k, v = split(self.W_q(x_q)), split(self.W_k(x_kv)), split(self.W_v(x_kv))
        attention = self.weights(torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(k.shape[-1]), dim=-1))
        mixed = functional.dropout(attention, self.p, self.training) @ v
        return cast("Tensor", self.W_out(mixed.transpose(1, 2).flatten(-2)))


class _FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.linear1, self.linear2, self.p = nn.Linear(width, 2 * hidden), nn.Linear(hidden, width), dropout

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        a, b = self.linear1(x).chunk(2, dim=-1)
        return cast("Tensor", self.linear2(functional.dropout(a * functional.relu(b), self.p, self.training)))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, attention_dropout: float, ffn_dropout: float, *, first: bool) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, attention_dropout)
        self.ffn_normalization = nn.LayerNorm(width)
        self.ffn = _FeedForward(width, int(width * 4 / 3), ffn_dropout)
        # The tokens of the first block are not normalised.
        self.attention_normalization = nn.Identity() if first else nn.LayerNorm(width)

    def forward(self, x: Float[Tensor, "b n d"], queries: slice) -> Float[Tensor, "b m d"]:
        normal = self.attention_normalization(x)
        x = x[:, queries] + self.attention(normal[:, queries], normal)
        return cast("Tensor", x + self.ffn(self.ffn_normalization(x)))


class _Tokens(nn.Module):
    """Learned vectors, one a token."""

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, *shape: int, names: tuple[str, ...]) -> None:
        super().__init__()
        bound = shape[-1] ** -0.5
        for name in names:
            self.register_parameter(name, nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))


class _Output(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.normalization, self.linear = nn.LayerNorm(width), nn.Linear(width, outputs)


class _Backbone(nn.Module):
    def __init__(self, blocks: int, width: int, heads: int, attention_dropout: float, ffn_dropout: float, outputs: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            _Block(width, heads, attention_dropout, ffn_dropout, first=number == 0) for number in range(blocks)
        )
        self.output = _Output(width, outputs)


class FTTransformer(nn.Module):
    """FT-Transformer without categorical features; token 0 is cls, token f the f-th feature.

    Args:
        features: number of numerical features.
        blocks: number of blocks, at least 2 (the last one has no square attention).
        width: size of a token, a multiple of `heads`.
        heads: attention heads, at least 2.
        attention_dropout: probability that an attention weight is dropped.
        ffn_dropout: the same for the hidden layer of the feed-forward part.
        outputs: values predicted per row.

    Raises:
        ValueError: sizes that do not fit.
    """

    def __init__(
        self,
        features: int,
        *,
        blocks: int,
        width: int,
        heads: int = 8,
        attention_dropout: float,
        ffn_dropout: float,
        outputs: int = 1,
    ) -> None:
        if features < 2 or blocks < 2:
            raise ValueError(f"{features} features and {blocks} blocks; expected at least 2 of each: kappa compares two rows")
        if heads < 2 or width % heads:
            raise ValueError(f"width {width} with {heads} heads; expected at least 2 heads and a multiple of their number")
        super().__init__()
        self.cls_embedding = _Tokens(width, names=("weight",))
        self.cont_embeddings = _Tokens(features, width, names=("weight", "bias"))
        self.backbone = _Backbone(blocks, width, heads, attention_dropout, ffn_dropout, outputs)

    def forward(self, x: Float[Tensor, "b features"]) -> Float[Tensor, "b outputs"]:
        """Predict from prepared features."""
        features = x[..., None] * self.cont_embeddings.weight + self.cont_embeddings.bias
        tokens = torch.cat([self.cls_embedding.weight.expand(len(x), 1, -1), features], dim=1)
        *blocks, last = self.backbone.blocks
        for block in blocks:
            tokens = block(tokens, slice(None))
        cls = last(tokens, slice(0, 1))[:, 0]
        output = self.backbone.output
        return cast("Tensor", output.linear(functional.relu(output.normalization(cls))))


def parameter_groups(module: FTTransformer, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters for AdamW as the authors group them: tokens, the blocks' norms and all biases do not decay."""
    decaying: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        spared = "embedding" in name or name.endswith(".bias") or "_normalization." in name
        (free if spared else decaying).append(parameter)
    return [{"params": decaying, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]


def measurable_blocks(module: FTTransformer) -> range:
    """Numbers, from 1, of the blocks whose attention is square: all but the last."""
    return range(1, len(module.backbone.blocks))


@contextmanager
def catching_blocks(
    module: FTTransformer, consume: Callable[[int, Any], None], blocks: range | list[int] | None = None
) -> Iterator[None]:
    """Within the block, hand the attention of the chosen blocks to `consume` as soon as each has run.

    Args:
        module: in evaluation mode.
        consume: called with the block's number, from 1, and its attention of shape ``(batch, heads, n, n)``, which
            the block multiplies its values with; n counts cls and the features.
        blocks: which blocks; by default every one that can be measured.

    Raises:
        ValueError: training mode, a block that does not exist, or the last one, whose attention is 1 x n.
    """
    if module.training:
        raise ValueError("the model is in training mode, where dropout changes the attention; call module.eval() first")
    count = len(module.backbone.blocks)
    chosen = list(measurable_blocks(module) if blocks is None else blocks)
    for number in chosen:
        if not 1 <= number <= count:
            raise ValueError(f"block {number} does not exist; expected numbers from 1 to {count - 1}")
        if number == count:
            n = len(module.cont_embeddings.weight) + 1
            raise ValueError(
                f"block {number} is the last one: only the cls token asks there, so its attention is 1 x {n}, has a single "
                f"row and no Dobrushin coefficient; expected blocks from 1 to {count - 1}"
            )

    def hook(number: int) -> Callable[[Any, Any, Any], None]:
        return lambda _module, _arguments, output: consume(number, output.detach())

    handles = [
        cast("_Block", module.backbone.blocks[number - 1]).attention.weights.register_forward_hook(hook(number))
        for number in chosen
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
