"""The module computes what the authors' package computes, and the attention caught is the attention used."""

import numpy as np
import pytest
import rtdl_revisiting_models as authors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dobrushin import check_stochastic
from dobrushin.fttransformer import FTTransformer, catching_blocks, measurable_blocks, parameter_groups


def network(features=5, blocks=3, width=16, heads=4, seed=0, dropout=0.0):
    torch.manual_seed(seed)
    module = FTTransformer(features, blocks=blocks, width=width, heads=heads, attention_dropout=dropout, ffn_dropout=dropout)
    return module.eval()


def reference(module, dropout=0.0):
    """The authors' network with the same weights."""
    block = module.backbone.blocks[0]
    other = authors.FTTransformer(
        n_cont_features=len(module.cont_embeddings.weight), cat_cardinalities=[], n_blocks=len(module.backbone.blocks),
        d_out=module.backbone.output.linear.out_features, d_block=module.cls_embedding.weight.shape[-1],
        attention_n_heads=block.attention.heads, attention_dropout=dropout, ffn_d_hidden_multiplier=4 / 3,
        ffn_dropout=dropout, residual_dropout=0.0,
    )  # fmt: skip
    other.load_state_dict(module.state_dict())  # strict: the same names and shapes
    return other.eval()


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 9), st.integers(2, 5), st.sampled_from([(8, 2), (16, 4), (24, 8)]), st.integers(0, 2**31))
def test_outputs_are_those_of_the_authors_package(features, blocks, sizes, seed):
    module = network(features, blocks, *sizes, seed=seed)
    x = torch.randn(7, features)
    torch.testing.assert_close(module(x), reference(module)(x, None), rtol=1e-5, atol=1e-6)  # other order of float32 sums


def test_training_steps_are_those_of_the_authors_package():
    module = network().train()
    other = reference(module).train()
    x, y = torch.randn(32, 5), torch.randn(32)
    mine = torch.optim.AdamW(parameter_groups(module, 1e-5), lr=1e-3)
    theirs = torch.optim.AdamW(other.make_parameter_groups(), lr=1e-3, weight_decay=1e-5)
    for _ in range(5):
        for optimizer, output in ((mine, module(x)), (theirs, other(x, None))):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(output[:, 0], y).backward()
            optimizer.step()
    for name, value in other.state_dict().items():
        if "W_k.bias" not in name:  # softmax does not see it: its gradient is rounding only, which Adam blows up to a step
            torch.testing.assert_close(module.state_dict()[name], value, rtol=1e-3, atol=2e-5, msg=name)


def test_the_same_parameters_decay_as_in_the_authors_package():
    module = network()
    other = reference(module)
    names = {id(p): name for name, p in other.named_parameters()}
    decaying, free = ({names[id(p)] for p in group["params"]} for group in other.make_parameter_groups())
    mine = {id(p): name for name, p in module.named_parameters()}
    groups = parameter_groups(module, 1e-5)
    assert [{mine[id(p)] for p in group["params"]} for group in groups] == [decaying, free]
    assert [group["weight_decay"] for group in groups] == [1e-5, 0.0]


def test_initial_weights_have_the_laws_of_the_authors_package():
    module = network(8, 3, 192, 8)
    torch.manual_seed(1)
    other = authors.FTTransformer(n_cont_features=8, cat_cardinalities=[], d_out=1, **authors.FTTransformer.get_default_kwargs(3))
    for name, value in other.state_dict().items():
        mine = module.state_dict()[name]
        assert mine.shape == value.shape
        if value.numel() > 500:  # uniform laws with the same bound; the largest of many values is near it
            assert float(mine.abs().max()) == pytest.approx(float(value.abs().max()), rel=0.02), name
        assert bool((mine == 0).all()) == bool((value == 0).all()), name


@pytest.mark.parametrize("blocks", [2, 3, 6])
def test_caught_attention_times_values_is_the_blocks_own_output(blocks):
    module = network(blocks=blocks)
    caught, seen = {}, {}

    def keep(number):
        return lambda _module, arguments, output: seen.update({number: (arguments[1], output)})

    handles = [module.backbone.blocks[k - 1].attention.register_forward_hook(keep(k)) for k in measurable_blocks(module)]
    x = torch.randn(11, 5)
    with torch.no_grad(), catching_blocks(module, lambda number, attention: caught.update({number: attention})):
        module(x)
    for handle in handles:
        handle.remove()
    assert list(caught) == list(range(1, blocks))
    for number, attention in caught.items():
        assert attention.shape == (11, 4, 6, 6)
        check_stochastic(attention)  # rows sum to 1
        inputs, output = seen[number]
        layer = module.backbone.blocks[number - 1].attention
        values = layer.W_v(inputs).reshape(11, 6, 4, 4)
        mixed = torch.einsum("bhij,bjhd->bihd", attention, values).reshape(11, 6, 16)
        torch.testing.assert_close(layer.W_out(mixed), output, rtol=1e-5, atol=1e-6)


def test_the_last_block_is_refused_by_name():
    module = network(blocks=3)
    with pytest.raises(ValueError, match=r"block 3 is the last one.*1 x 6.*expected blocks from 1 to 2"), \
         catching_blocks(module, print, [1, 3]):  # fmt: skip
        pass
    seen = []
    module.backbone.blocks[2].attention.weights.register_forward_hook(lambda m, a, output: seen.append(output))
    module(torch.randn(2, 5))
    assert seen[0].shape == (2, 4, 1, 6)
    with pytest.raises(ValueError, match="square matrices"):
        check_stochastic(seen[0])


def test_hooks_are_removed_and_bad_requests_named():
    module = network()
    with pytest.raises(RuntimeError, match="on purpose"), catching_blocks(module, print):
        raise RuntimeError("on purpose")
    assert not any(block.attention.weights._forward_hooks for block in module.backbone.blocks)
    with pytest.raises(ValueError, match="block 4 does not exist"), catching_blocks(module, print, [4]):
        pass
    with pytest.raises(ValueError, match="training mode"), catching_blocks(module.train(), print):
        pass
    with pytest.raises(ValueError, match="at least 2 of each"):
        FTTransformer(1, blocks=3, width=8, attention_dropout=0.0, ffn_dropout=0.0)
    with pytest.raises(ValueError, match="width 10 with 4 heads"):
        FTTransformer(3, blocks=3, width=10, heads=4, attention_dropout=0.0, ffn_dropout=0.0)


def test_float32_attention_is_as_near_to_float64_as_the_verdicts_assume():
    from dobrushin.measure import MODEL_ROUNDING

    module = network(8, 6, 192, 8)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "W_" in name:
                parameter *= 3  # attention as uneven as a trained network's
    x = torch.randn(64, 8)
    runs = []
    for dtype in (torch.float32, torch.float64):
        caught = []
        with (
            torch.inference_mode(),
            catching_blocks(module.to(dtype), lambda _, attention, to=caught: to.append(attention.double())),
        ):
            module(x.to(dtype))
        runs.append(np.stack(caught))
    assert (np.abs(runs[0] / runs[1] - 1)).max() < MODEL_ROUNDING / 2  # renormalising a row doubles it at most
