"""Small models of the usual architectures, batch and length dynamic, training and evaluation.

`MODELS` maps a name to a function that builds a `Model`. `python -m tests.torch.proof.models [NAME...]` runs the long form:
more sizes, both decompositions, training and evaluation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from . import check
from .trace import Dynamic

Batch = dict[str, torch.Tensor]


@dataclass
class Model:
    """`batch(b, s)` gives the inputs by name; `dynamic` the dimensions of each that vary. `outputs`: those of the result
    that are compared, by name; without, the result is a tensor."""

    module: nn.Module
    batch: Callable[[int, int], Batch]
    dynamic: dict[str, tuple[int, ...]]
    outputs: tuple[str, ...] = ()
    sizes: Sequence[tuple[int, int]] = ((3, 5), (2, 7), (5, 11))
    tolerance: float = 1e-5
    options: dict[str, Any] = field(default_factory=dict)
    mkldnn: bool = True


def _generator(b: int, s: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 * b + s)


def _text(b: int, s: int) -> Batch:
    generator = _generator(b, s)
    ids = torch.randint(3, 50, (b, s), generator=generator)
    mask = torch.ones(b, s, dtype=torch.int64)
    for row in range(1, b, 2):
        mask[row, max(1, s - 1 - row % 3) :] = 0
    labels = torch.where(mask.bool(), ids, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


_TEXT = {"input_ids": (0, 1), "attention_mask": (0, 1), "labels": (0, 1)}
_SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def _hf(kind: str, config: str, options: dict[str, Any], **more: Any) -> nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    built = getattr(transformers, config)(**options)
    if hasattr(built, "use_cache"):
        built.use_cache = False
    model: nn.Module = getattr(transformers, kind).from_config(built, **more)
    return model.float()


def _causal(
    config: str, options: dict[str, Any], dtype: torch.dtype = torch.float32, **more: Any
) -> Callable[[], Model]:
    def build() -> Model:
        arguments: dict[str, Any] = {"attn_implementation": "sdpa", **more}
        module = _hf("AutoModelForCausalLM", config, {**_TOKENS, **options}, **arguments).to(dtype)
        # The usual way of experts has an operator of torch for bfloat16 alone.
        tolerance = 1e-5 if dtype == torch.float32 else 4e-2
        return Model(module, _text, _TEXT, ("loss", "logits"), tolerance=tolerance)

    return build


def _chunked(build: Callable[[], Model]) -> Callable[[], Model]:
    """At lengths of several chunks of eight."""

    def built() -> Model:
        model = build()
        model.sizes = ((3, 19), (2, 29), (5, 11))
        return model

    return built


def _masked(config: str, options: dict[str, Any]) -> Callable[[], Model]:
    def build() -> Model:
        module = _hf("AutoModelForMaskedLM", config, options, attn_implementation="sdpa")
        return Model(module, _text, _TEXT, ("loss", "logits"))

    return build


def _gqa(**more: Any) -> dict[str, Any]:
    return {**_SIZES, "num_key_value_heads": 2, **more}


def t5() -> Model:
    options = {"vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}
    module = _hf(
        "AutoModelForSeq2SeqLM", "T5Config", {**options, "dropout_rate": 0, "decoder_start_token_id": 0, **_TOKENS}
    )

    def batch(b: int, s: int) -> Batch:
        made = _text(b, s)
        made["labels"] = torch.randint(3, 50, (b, max(3, s // 2 + 1)), generator=_generator(s, b))
        return made

    return Model(module, batch, _TEXT, ("loss", "logits"))


def vit() -> Model:
    options = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    options.update(
        {
            "image_size": 16,
            "patch_size": 8,
            "num_labels": 5,
            "hidden_dropout_prob": 0,
            "attention_probs_dropout_prob": 0,
        }
    )
    module = _hf("AutoModelForImageClassification", "ViTConfig", options)

    def batch(b: int, s: int) -> Batch:
        generator = _generator(b, s)
        pixels = torch.randn(b, 3, 16, 16, generator=generator)
        return {"pixel_values": pixels, "labels": torch.randint(0, 5, (b,), generator=generator)}

    return Model(module, batch, {"pixel_values": (0,), "labels": (0,)}, ("loss", "logits"))


def whisper() -> Model:
    options = {"vocab_size": 50, "num_mel_bins": 8, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
    options.update(
        {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    )
    options.update({"max_source_positions": 8, "max_target_positions": 32, "decoder_start_token_id": 3, "dropout": 0.0})
    module = _hf("AutoModelForSpeechSeq2Seq", "WhisperConfig", {**options, **_TOKENS})

    def batch(b: int, s: int) -> Batch:
        generator = _generator(b, s)
        features = torch.randn(b, 8, 16, generator=generator)
        return {"input_features": features, "labels": torch.randint(4, 50, (b, s), generator=generator)}

    return Model(module, batch, {"input_features": (0,), "labels": (0, 1)}, ("loss", "logits"))


class SpeechEncoderDecoder(nn.Module):
    """As Whisper, with frames of any number: strided convolutions, an encoder, a causal decoder with cross attention."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(8, 32, 3, padding=1)
        self.conv2 = nn.Conv1d(32, 32, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.randn(64, 32) / 5)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 48, 0.0, batch_first=True, activation="gelu", norm_first=True)
        self.embed = nn.Embedding(50, 32)
        self.decoder = nn.TransformerDecoderLayer(32, 4, 48, 0.0, batch_first=True, activation="gelu", norm_first=True)

    def forward(self, frames: torch.Tensor, ids: torch.Tensor, labels: torch.Tensor) -> Any:
        x = F.gelu(self.conv2(F.gelu(self.conv1(frames)))).transpose(1, 2)
        memory = self.encoder(x + self.positions[: x.shape[1]])
        t = ids.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = self.decoder(self.embed(ids) + self.positions[:t], memory, tgt_mask=mask)
        logits = y @ self.embed.weight.t()
        return F.cross_entropy(logits.reshape(-1, 50), labels.reshape(-1)), logits


def speech() -> Model:
    def batch(b: int, s: int) -> Batch:
        generator = _generator(b, s)
        ids = torch.randint(0, 50, (b, s), generator=generator)
        return {"frames": torch.randn(b, 8, 2 * s + 3, generator=generator), "ids": ids, "labels": ids.flip(0)}

    return Model(SpeechEncoderDecoder(), batch, {"frames": (0, 2), "ids": (0, 1), "labels": (0, 1)})


def wav2vec2() -> Model:
    options = {
        "vocab_size": 20,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    options.update({"conv_dim": (16, 16), "conv_stride": (4, 2), "conv_kernel": (6, 3), "num_feat_extract_layers": 2})
    options.update(
        {"num_conv_pos_embeddings": 6, "num_conv_pos_embedding_groups": 2, "hidden_dropout": 0.0, "layerdrop": 0.0}
    )
    options.update(
        {"attention_dropout": 0.0, "feat_proj_dropout": 0.0, "activation_dropout": 0.0, "apply_spec_augment": False}
    )
    module = _hf("AutoModel", "Wav2Vec2Config", options, attn_implementation="sdpa")

    def batch(b: int, s: int) -> Batch:
        return {"input_values": torch.randn(b, 40 + 8 * s, generator=_generator(b, s))}

    return Model(module, batch, {"input_values": (0, 1)}, ("last_hidden_state",))


def clip() -> Model:
    text = {**_SIZES, "max_position_embeddings": 32, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    vision.update({"image_size": 16, "patch_size": 8})
    module = _hf("AutoModel", "CLIPConfig", {"text_config": text, "vision_config": vision, "projection_dim": 16})

    def batch(b: int, s: int) -> Batch:
        generator = _generator(b, s)
        made = _text(b, s)
        made.pop("labels")
        made["pixel_values"] = torch.randn(b, 3, 16, 16, generator=generator)
        return made

    dynamic = {"input_ids": (0, 1), "attention_mask": (0, 1), "pixel_values": (0,)}
    return Model(module, batch, dynamic, ("loss", "logits_per_image", "text_embeds"), options={"return_loss": True})


def deberta() -> Model:
    options = {**_SIZES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "relative_attention": True}
    options.update(
        {"pos_att_type": ["c2p", "p2c"], "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
    )
    module = _hf("AutoModelForMaskedLM", "DebertaV2Config", options)
    return Model(module, _text, _TEXT, ("loss", "logits"))


class SelectiveScan(nn.Module):
    """State-space layer as in Mamba: causal depthwise convolution, input-dependent decay, scan by chunks of four."""

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(16, 64)
        self.conv = nn.Conv1d(32, 32, 4, padding=3, groups=32)
        self.delta = nn.Linear(32, 32)
        self.out = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        hidden, gate = self.input(x).chunk(2, -1)
        hidden = F.silu(self.conv(hidden.transpose(1, 2))[..., :s]).transpose(1, 2)
        log = -F.softplus(self.delta(hidden)) / 4
        more = (4 - s % 4) % 4
        hidden_chunks = F.pad(hidden, (0, 0, 0, more)).reshape(b, -1, 4, 32)
        total = F.pad(log, (0, 0, 0, more)).reshape(b, -1, 4, 32).cumsum(2)
        gaps = (total.unsqueeze(3) - total.unsqueeze(2)).masked_fill(
            torch.ones(4, 4, dtype=torch.bool).triu(1)[:, :, None], float("-inf")
        )
        inside = (gaps.exp() * hidden_chunks.unsqueeze(2)).sum(3)
        last = inside[:, :, -1]
        decay = total[:, :, -1]
        n = decay.shape[1]
        across = (decay.cumsum(1).unsqueeze(2) - decay.cumsum(1).unsqueeze(1)).masked_fill(
            torch.ones(n, n, dtype=torch.bool).triu(1)[:, :, None], float("-inf")
        )
        carried = (across.exp() * last.unsqueeze(1)).sum(2)
        before = F.pad(carried, (0, 0, 1, 0))[:, :-1]
        y = (inside + total.exp() * before.unsqueeze(2)).reshape(b, -1, 32)[:, :s]
        return self.out(y * F.silu(gate))


def mamba() -> Model:
    def batch(b: int, s: int) -> Batch:
        return {"x": torch.randn(b, s, 16, generator=_generator(b, s))}

    return Model(SelectiveScan(), batch, {"x": (0, 1)}, sizes=((3, 9), (2, 7), (5, 13)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(1, 4, 3, padding=1)
        self.norm1 = nn.GroupNorm(2, 4)
        self.down2 = nn.Conv2d(4, 8, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.last = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = F.silu(self.norm1(self.down1(x)))
        second = F.silu(self.norm2(self.down2(F.avg_pool2d(first, 2))))
        return self.last(torch.cat([self.up(second), first], 1))


def unet() -> Model:
    def batch(b: int, s: int) -> Batch:
        return {"x": torch.randn(b, 1, 8, 8, generator=_generator(b, s))}

    return Model(UNet(), batch, {"x": (0,)})


def unet_spatial() -> Model:
    def batch(b: int, s: int) -> Batch:
        return {"x": torch.randn(b, 1, 8, 2 * s, generator=_generator(b, s))}

    return Model(UNet(), batch, {"x": (0, 3)})


class NormCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(self.norm2(self.conv2(x)))
        logits = self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return F.cross_entropy(logits, labels), logits


def cnn() -> Model:
    def batch(b: int, s: int) -> Batch:
        generator = _generator(b, s)
        x = torch.randn(b, 3, 8, 8, generator=generator)
        return {"x": x, "labels": torch.randint(0, 10, (b,), generator=generator)}

    return Model(NormCnn(), batch, {"x": (0,), "labels": (0,)})


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell = kind(8, 12, batch_first=True)
        self.head = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        hidden, _ = self.cell(x)
        logits = self.head(hidden[:, -1])
        return F.cross_entropy(logits, labels), logits


def _recurrent(kind: type[nn.Module], mkldnn: bool = True) -> Callable[[], Model]:
    def build() -> Model:
        def batch(b: int, s: int) -> Batch:
            # Steps of a recurrence are unrolled when it is traced: their number is constant.
            generator = _generator(b, s)
            x = torch.randn(b, 4, 8, generator=generator)
            return {"x": x, "labels": torch.randint(0, 4, (b,), generator=generator)}

        return Model(Recurrent(kind), batch, {"x": (0,), "labels": (0,)}, mkldnn=mkldnn)

    return build


_GPT2 = {"vocab_size": 50, "n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 4}
_MOE = _gqa(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16)
_MIXTRAL = _gqa(num_local_experts=4, num_experts_per_tok=2)
_BERT = {**_SIZES, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
_OPT = {"vocab_size": 50, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
_LINEAR = {  # of a layer with linear attention
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
_MAMBA2 = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "state_size": 8, "chunk_size": 8}
_DEEPSEEK = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 0,
}
_MODERN = {**_SIZES, "num_hidden_layers": 2, "attention_dropout": 0, "local_attention": 4}

MODELS: dict[str, Callable[[], Model]] = {
    "llama": _causal("LlamaConfig", _gqa()),
    "qwen2": _causal("Qwen2Config", _gqa()),
    "qwen3": _causal("Qwen3Config", _gqa(head_dim=8)),
    "mistral": _causal("MistralConfig", _gqa(sliding_window=4)),
    "gemma2": _causal(
        "Gemma2Config", _gqa(num_hidden_layers=2, head_dim=8, sliding_window=4), attn_implementation="eager"
    ),
    "gpt2": _causal("GPT2Config", {**_GPT2, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}),
    "opt": _causal("OPTConfig", {**_OPT, "max_position_embeddings": 64, "word_embed_proj_dim": 32, "dropout": 0}),
    "mixtral": _causal("MixtralConfig", _MIXTRAL, experts_implementation="batched_mm"),
    "mixtral_default": _causal("MixtralConfig", _MIXTRAL, torch.bfloat16),
    "qwen2_moe": _causal("Qwen2MoeConfig", _MOE, experts_implementation="batched_mm"),
    "qwen2_moe_default": _causal("Qwen2MoeConfig", _MOE, torch.bfloat16),
    "deepseek": _causal("DeepseekV3Config", {**_SIZES, **_DEEPSEEK}),
    "gpt_oss": _causal(
        "GptOssConfig", _gqa(head_dim=8, num_local_experts=4, num_experts_per_tok=2), attn_implementation="eager"
    ),
    "bloom": _causal(
        "BloomConfig",
        {"vocab_size": 50, "hidden_size": 32, "n_layer": 1, "n_head": 4, "hidden_dropout": 0, "attention_dropout": 0},
        attn_implementation="eager",
    ),
    "qwen3_next": _causal(
        "Qwen3NextConfig",
        _gqa(head_dim=8, layer_types=["linear_attention"], num_experts=4, num_experts_per_tok=2, **_LINEAR)
        | {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "decoder_sparse_step": 1},
    ),
    "olmo_hybrid": _causal(
        "OlmoHybridConfig",
        _gqa(layer_types=["linear_attention", "full_attention"], **_LINEAR) | {"num_hidden_layers": 2},
    ),
    "mamba2": _chunked(
        _causal(
            "Mamba2Config",
            {**_MAMBA2, "num_heads": 4, "head_dim": 16, "n_groups": 2, "expand": 2},
            attn_implementation="eager",
        )
    ),
    "nemotron_h": _causal(
        "NemotronHConfig",
        _gqa(head_dim=8, layers_block_type=["mamba"], mamba_num_heads=4, mamba_head_dim=8, ssm_state_size=8)
        | {"hybrid_override_pattern": "M", "n_groups": 2, "chunk_size": 8},
    ),
    "llama_bfloat16": _causal("LlamaConfig", _gqa(), torch.bfloat16),
    "bert": _masked("BertConfig", _BERT),
    "modernbert": _masked(
        "ModernBertConfig",
        {**_MODERN, **_TOKENS, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "t5": t5,
    "deberta": deberta,
    "vit": vit,
    "clip": clip,
    "whisper": whisper,
    "speech": speech,
    "wav2vec2": wav2vec2,
    "mamba": mamba,
    "unet": unet,
    "unet_spatial": unet_spatial,
    "cnn": cnn,
    "lstm": _recurrent(nn.LSTM, mkldnn=False),  # as on every device but the CPU, which has one operator for all of it
    "lstm_mkldnn": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
}


def prove(
    name: str,
    *,
    training: bool = True,
    decompositions: str = "core",
    sizes: int = 2,
    runs: Sequence[tuple[str, check.Choice]] = check.QUICK_RUNS,
    engine: Any = None,
    alternate: bool = False,
) -> check.Verdict:
    """Parameters and buffers are arguments, so that all gradients and everything changed in place are compared."""
    torch.manual_seed(0)
    model = MODELS[name]()
    model.module.train(training)
    state = {**dict(model.module.named_parameters()), **dict(model.module.named_buffers())}
    inputs = list(model.dynamic)

    def function(*values: torch.Tensor) -> Any:
        given = dict(zip(inputs, values, strict=False))
        tensors = dict(zip(state, values[len(inputs) :], strict=True))
        result = torch.func.functional_call(model.module, tensors, (), {**given, **model.options})
        if model.outputs:
            return tuple(getattr(result, output) for output in model.outputs)
        return result

    def arguments(b: int, s: int) -> list[torch.Tensor]:
        made = model.batch(b, s)
        fixed = [value.detach().clone().requires_grad_(value.requires_grad) for value in state.values()]
        return [*(made[one] for one in inputs), *fixed]

    dynamic = [Dynamic(index, dim) for index, one in enumerate(inputs) for dim in model.dynamic[one]]
    with torch.backends.mkldnn.flags(enabled=model.mkldnn):
        return check.prove(
            function,
            [arguments(*size) for size in model.sizes[:sizes]],
            dynamic,
            decompositions=decompositions,
            gradients=training,
            runs=runs,
            tolerance=model.tolerance,
            engine=engine,
            alternate=alternate,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="the form that the tests run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = 0
    for name in options.names or MODELS:
        forms = [("core", True)] if options.quick else [(t, m) for t in ("core", "inductor") for m in (True, False)]
        for decompositions, training in forms:
            start = time.monotonic()
            verdict = prove(
                name,
                training=training,
                decompositions=decompositions,
                sizes=2 if options.quick else 3,
                runs=check.QUICK_RUNS if options.quick else check.RUNS,
                alternate=options.quick,
            )
            failed += verdict.status in ("wrong", "error")
            mode = "training" if training else "evaluation"
            print(
                f"{name:18} {decompositions:9}{mode:11}{verdict.status:9} masks {verdict.masks:3}"
                f" {time.monotonic() - start:6.1f} s  {verdict.reason} {verdict.notes}",
                flush=True,
            )
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
