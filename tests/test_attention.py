"""What is caught is what the layer used: the proof for every model of the registry, at its full architecture.

Weights are drawn by the initialiser, which changes no shape and no order of tokens.
"""

from __future__ import annotations

import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from dobrushin import images, inputs, models
from dobrushin.attention import catching_attention, find_sites
from dobrushin.models import REGISTRY


def refused(message: str):
    return pytest.raises(ValueError, match=re.escape(message))


# --- an independent account of what a layer computes --------------------------------------------------------------

VALUES = ("value", "v_proj", "v_lin")
OUTPUTS = ("o_proj", "out_lin")


def layers_of(model):
    """The modules that turn tokens into attention and values, in order, found by name and not by the package."""
    if model.spec.source == "timm":
        return [block.attn for block in model.module.blocks]
    return [m for _, m in model.module.named_modules() if any(hasattr(m, name) for name in VALUES)]


def named(module, names):
    return next((getattr(module, name) for name in names if hasattr(module, name)), None)


def rebuilt(layer, attention, x):
    """The layer's output from caught attention: A times the values, then the layer's own last linear map."""
    batch, heads, n, _ = attention.shape
    if hasattr(layer, "qkv"):
        values = layer.qkv(x).reshape(batch, n, 3, heads, -1)[:, :, 2]
        last = layer.proj
    else:
        values, last = named(layer, VALUES)(x).reshape(batch, n, heads, -1), named(layer, OUTPUTS)
    context = torch.einsum("bhqk,bkhd->bqhd", attention, values).reshape(batch, n, -1)
    return last(context) if last is not None else context


@contextmanager
def fused(model):
    """The model's own fast path, which never forms the matrix."""
    if model.spec.source == "timm":
        assert all(block.attn.fused_attn for block in model.module.blocks)
        yield
    else:
        model.module.set_attn_implementation("sdpa")
        try:
            yield
        finally:
            model.module.set_attn_implementation("eager")


def seen(model, batch):
    """Input and output of every layer's attention in the fused run."""
    found = []

    def keep(_module, arguments, keywords, output):
        x = arguments[0] if arguments else keywords["hidden_states"]
        found.append((x, output[0] if isinstance(output, tuple) else output))

    handles = [layer.register_forward_hook(keep, with_kwargs=True) for layer in layers_of(model)]
    try:
        with torch.inference_mode(), fused(model):
            model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return found


def caught(model, batch, tokens=None):
    found = []
    with torch.inference_mode(), catching_attention(model.module, lambda _, A: found.append(A), tokens=tokens):
        model(batch)
    return found


class StopError(Exception):
    pass


def embedded(model, batch):
    """What goes into the first layer: one row a token, before anything mixes them."""

    def stop(_module, arguments, keywords):
        raise StopError(arguments[0] if arguments else keywords["hidden_states"])

    first = layers_of(model)[0]
    path = next(name for name, m in model.module.named_modules() if m is first)
    block = model.module.get_submodule(re.match(r".*?\.\d+", path)[0])
    handle = block.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        with torch.inference_mode():
            model(batch)
    except StopError as stopped:
        return stopped.args[0]
    finally:
        handle.remove()
    raise AssertionError("the first layer was not reached")


def inputs_of(model, number):
    if model.takes == "images":
        return images.images(model, images.default_pictures(number))
    return inputs.sequences(model.tokenizer, inputs.default_text(), number, model.spec.size)


# --- every model of the registry ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=list(REGISTRY))
def built(request):
    return models.load(request.param, untrained=True)


@pytest.fixture(scope="module")
def given(built):
    return inputs_of(built, 1)


def test_caught_attention_times_the_values_is_the_output_of_the_fused_layer(built, given):
    spec, batch = built.spec, given.batch(0, 1)
    attention, layers = caught(built, batch, tokens=spec.tokens), layers_of(built)
    assert len(attention) == len(layers) == spec.layers
    for A, layer, (x, y) in zip(attention, layers, seen(built, batch), strict=True):
        assert A.shape == (1, spec.heads, spec.tokens, spec.tokens)
        assert A.dtype == torch.float32
        assert (A.double().sum(-1) - 1).abs().max() < 1e-6  # the softmax of float32
        with torch.inference_mode():
            assert (rebuilt(layer, A, x) - y).abs().max() < 1e-5
            if layer is layers[-1]:  # a test that any matrix passes proves nothing: other heads, or columns for rows, fail
                for other in (A.roll(1, dims=1), A.transpose(-1, -2)):
                    assert (rebuilt(layer, other, x) - y).abs().max() > 1e-4


def test_tokens_and_their_roles_are_those_of_the_model(built, given):
    spec, roles = built.spec, given.roles(0)
    assert len(roles) == spec.tokens
    assert embedded(built, given.batch(0, 1)).shape[1] == spec.tokens
    if built.takes == "text":
        assert roles == ("cls", *["content"] * 126, "separator")
        return
    registers = [f"register {k}" for k in range(1, 5)] if "reg4" in spec.checkpoint else []
    side = 224 // (14 if "dinov2" in spec.name else 16)
    assert roles == ("cls", *registers, *["content"] * side**2)


def test_the_order_of_tokens_is_that_of_the_roles(built, given):
    """Changing one thing that goes in changes one token: the one that has its role."""
    batch, roles = given.batch(0, 1), given.roles(0)
    before = embedded(built, batch)

    def changed(batch):
        return (embedded(built, batch) - before).abs().amax(-1)[0].nonzero().flatten().tolist()

    if built.takes == "text":
        for k in (0, 1, 77, 127):
            ids = batch["input_ids"].clone()
            ids[0, k] = int(batch["input_ids"][0, 50])
            assert changed(batch | {"input_ids": ids}) == [k]
        return
    patch = models.patch_size(built.module)
    side, first = 224 // patch, roles.index("content")
    for row, column in ((0, 0), (0, side - 1), (3, 7), (side - 1, 0), (side - 1, side - 1)):
        pixels = batch["pixel_values"].clone()
        pixels[:, :, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch] += 1
        assert changed({"pixel_values": pixels}) == [first + row * side + column]
    special = {name.rpartition(".")[2]: p for name, p in built.module.named_parameters()}
    for name in ("cls_token", "reg_token"):
        for k in range(special[name].shape[1] if name in special else 0):
            own = special[name][0, k].clone()
            special[name][0, k] += 1
            try:
                assert changed(batch) == [roles.index("cls" if name == "cls_token" else f"register {k + 1}")]
            finally:
                special[name][0, k] = own


# --- small models: what is left behind, and what is refused -------------------------------------------------------


def bert(**changes):
    from transformers import BertConfig, BertModel

    small = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
    implementation = changes.pop("attn_implementation", "eager")
    return BertModel._from_config(BertConfig(**small | changes), attn_implementation=implementation).eval()


def small_vit(**changes):
    from timm.models.vision_transformer import VisionTransformer

    small = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 3, "num_heads": 2, "num_classes": 0}
    return VisionTransformer(**small | changes).eval()


IDS = torch.arange(12).reshape(2, 6)
PIXELS = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)


def state(module):
    """Everything that catching touches."""
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules()]
    flags = [getattr(m, "fused_attn", None) for m in module.modules()]
    return hooks, flags, getattr(getattr(module, "config", None), "output_attentions", None)


@pytest.mark.parametrize(("module", "batch"), [(bert(), IDS), (small_vit(), PIXELS)], ids=["transformers", "timm"])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_model_is_left_as_it_was_even_after_an_error(module, batch, mixed):
    if mixed and hasattr(module, "blocks"):  # a setting that is not the same in all layers comes back layer by layer
        module.blocks[1].attn.fused_attn = False
    before, output = state(module), module(batch)
    with torch.inference_mode():
        for error in (None, KeyboardInterrupt, RuntimeError, MemoryError):

            def consume(layer, attention, error=error):
                if error and layer == 2:
                    raise error

            if error is None:
                with catching_attention(module, consume):
                    module(batch)
            else:
                with pytest.raises(error), catching_attention(module, consume):
                    module(batch)
            assert state(module) == before
        again = module(batch)
    first, second = (x if torch.is_tensor(x) else x.last_hidden_state for x in (output, again))
    assert torch.equal(first, second)


@pytest.mark.parametrize(("module", "batch"), [(bert(), IDS), (small_vit(), PIXELS)], ids=["transformers", "timm"])
def test_every_call_within_the_block_gives_every_layer_once(module, batch):
    seen_layers = []
    with torch.inference_mode(), catching_attention(module, lambda layer, _: seen_layers.append(layer)):
        module(batch)
        module(batch[:1])
    assert seen_layers == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(("module", "batch"), [(bert(), IDS), (small_vit(), PIXELS)], ids=["transformers", "timm"])
def test_an_input_has_the_same_attention_alone_and_in_a_batch(module, batch):
    def caught_on(x):
        found = []
        with torch.inference_mode(), catching_attention(module, lambda _, A: found.append(A.clone())):
            module(x)
        return torch.stack(found)

    together = caught_on(batch)
    assert together.shape[:3] == (3, 2, 2)
    for k in range(2):
        assert (caught_on(batch[k : k + 1])[:, 0] - together[:, k]).abs().max() < 1e-6


def test_the_attention_of_transformers_is_what_the_model_itself_returns():
    """Asked for on a model that is called in the ordinary way: the same numbers, layer by layer."""
    module = bert()
    found = []
    with torch.inference_mode():
        with catching_attention(module, lambda _, A: found.append(A)):
            module(IDS)
        official = module(IDS, output_attentions=True).attentions
    assert len(official) == 3
    assert all(torch.equal(a, b) for a, b in zip(found, official, strict=True))


def run(module, batch, tokens=None):
    with torch.inference_mode(), catching_attention(module, lambda _layer, _attention: None, tokens=tokens):
        module(batch)


def test_training_mode_is_refused_because_of_dropout():
    for module, batch in ((bert(), IDS), (small_vit(), PIXELS)):
        with refused("training mode, where dropout changes the attention"):
            run(module.train(), batch)


def test_fused_attention_of_transformers_is_refused():
    with refused("runs 'sdpa' attention, which never forms the matrix"):
        run(bert(attn_implementation="sdpa"), IDS)


def test_attention_that_is_none_or_absent_is_refused():
    module = bert()
    own = type(module.encoder.layer[0].attention.self).forward
    for fake in (lambda out: (out[0], None), lambda out: (out[0],), lambda out: out[0], lambda out: (out[0], ())):
        inner = module.encoder.layer[1].attention.self
        inner.forward = lambda *a, fake=fake, inner=inner, **k: fake(own(inner, *a, **k))
        with refused("layer 2 (BertSelfAttention) gave no attention matrix"):
            run(module, IDS)
        del inner.forward


def test_causal_attention_is_refused():
    with refused("the model is a decoder: its attention is causal"):
        run(bert(is_decoder=True), IDS)
    module = bert()
    inner = module.encoder.layer[0].attention.self
    own = type(inner).forward

    def causal(*arguments, **keywords):
        hidden, attention = own(inner, *arguments, **keywords)
        lower = attention.tril()
        return hidden, lower / lower.sum(-1, keepdim=True)

    inner.forward = causal
    with refused("layer 1 has causal attention, no token attends to a later one"):
        run(module, IDS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda A: A[:, :, :1], "a single query (1×N, which has no kappa)"),
        (lambda A: A[:, :, :, :4], "windowed, pooled or cross-attention"),
        (lambda A: A.mean(1), "windowed, pooled or cross-attention"),
        (lambda A: A[:, :, :4, :4], "attention of 4×4, but the input has 6 tokens"),
    ],
)
def test_attention_of_another_shape_is_refused(change, message):
    module = bert()
    inner = module.encoder.layer[0].attention.self
    own = type(inner).forward

    def changed(*arguments, **keywords):
        hidden, attention = own(inner, *arguments, **keywords)
        return hidden, change(attention)

    inner.forward = changed
    with refused(message):
        run(module, IDS, tokens=6)


def test_a_model_that_skips_a_layer_is_refused():
    module = small_vit()
    module.blocks[1] = torch.nn.Identity()
    module.blocks[1].attn = torch.nn.Module()
    module.blocks[1].attn.attn_drop = torch.nn.Identity()
    with refused("attention was caught in layers [1, 2]; expected [1, 2, 3] in every call"):
        run(module, PIXELS)
    with refused("attention was caught in layers []"), catching_attention(small_vit(), print):
        pass


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:resnet18", "convolutional, windowed and pooled models cannot be measured"),
        ("timm:swin_tiny_patch4_window7_224", "it is convolutional, windowed, pooled or made otherwise"),
        ("timm:pit_ti_224", "it is convolutional, windowed, pooled or made otherwise"),
        ("timm:no_such_model", "timm has no model 'no_such_model'"),
        ("dinov2", "expected one of dinov2-s, dinov2-b"),
        ("hf:", "expected one of dinov2-s, dinov2-b"),
    ],
)
def test_models_that_cannot_be_measured_are_refused_before_anything_runs(name, message):
    with refused(message):
        models.load(name, untrained=True)


@pytest.mark.parametrize("name", ["xcit_nano_12_p16_224", "samvit_base_patch16_224", "cait_xxs24_224"])
def test_attention_over_channels_windows_or_part_of_the_tokens_is_refused_when_it_is_caught(name):
    """XCiT attends over channels, SAM within windows; CaiT's last layers query cls alone."""
    import timm

    module = timm.create_model(name, depth=1)
    size = module.pretrained_cfg["input_size"][-1]
    with refused("layer 1 has attention"):
        run(module.eval(), torch.zeros(1, 3, size, size), tokens=(size // 16) ** 2 + 1)


# --- roles of other families --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "prefix", "patches"),
    [
        ("deit_tiny_distilled_patch16_224", ("cls", "distillation"), 196),
        ("eva02_tiny_patch14_224", ("cls",), 256),  # rotary positions
        ("test_vit3", ("register 1",), 100),  # no cls
        ("test_vit", ("cls",), 100),
    ],
)
def test_roles_of_a_vision_model_come_from_the_model(name, prefix, patches):
    model = models.load(f"timm:{name}", untrained=True)
    assert model.roles() == (*prefix, *["content"] * patches)
    batch = inputs_of(model, 1).batch(0, 1)
    attention, layers = caught(model, batch, tokens=len(model.roles())), layers_of(model)
    x, y = seen(model, batch)[0]
    if name != "eva02_tiny_patch14_224":  # which projects q, k and v in its own way
        with torch.inference_mode():
            assert (rebuilt(layers[0], attention[0], x) - y).abs().max() < 1e-5


@pytest.mark.parametrize("size", [112, 448])
def test_the_number_of_patches_follows_the_size(size):
    model = models.load("timm:test_vit", untrained=True, size=size)
    assert len(model.roles()) == 1 + (size // 16) ** 2
    assert caught(model, {"pixel_values": torch.zeros(1, 3, size, size)})[0].shape[-1] == len(model.roles())


@pytest.mark.parametrize("name", ["timm:test_vit", "dinov2-s-saliency"])
def test_a_size_that_the_patches_do_not_divide_is_refused(name):
    with pytest.raises(ValueError, match=r"225.*expected a multiple of 1[46] px"):
        models.load(name, untrained=True, size=225)


def test_special_tokens_of_an_unknown_kind_are_refused():
    module = small_vit()
    module.num_prefix_tokens = 3
    with refused("the model has 3 tokens before its patches, of which ['cls'] are known"):
        models.token_roles(module, 32)


def test_two_runs_of_an_initialiser_agree_and_another_seed_does_not():
    first, second, other = (models.load("timm:test_vit", untrained=True, seed=seed) for seed in (3, 3, 4))
    state_before = torch.random.get_rng_state()
    assert first.weights_sha256 == second.weights_sha256 != other.weights_sha256
    models.load("timm:test_vit", untrained=True)
    assert torch.equal(torch.random.get_rng_state(), state_before)
    assert np.array_equal(models.content_mask(first.roles()), np.arange(101) > 0)
    assert find_sites(first.module)[1] == 6
