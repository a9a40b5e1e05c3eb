"""Small models, one per architecture family, each with what makes it hard for a compile cache.

`CASES` maps a name to a function that builds (module, step). ``step(compiled)`` runs one forward pass on fixed inputs and
returns the tensor to differentiate, or a tensor that needs no gradient for an inference case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Case = tuple[nn.Module, Callable[[Any], torch.Tensor]]


class CountingMlp(nn.Module):
    """Counts its calls and tracks a running mean in buffers, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.norm = nn.LayerNorm(64)
        self.second = nn.Linear(64, 8)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.norm(self.first(x)))
        self.calls.add_(1)
        self.mean.mul_(0.9).add_(hidden.detach().mean(0), alpha=0.1)
        return self.second(hidden) + self.mean.sum()


class BatchNormCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(self.norm2(self.conv2(x)))
        return F.cross_entropy(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), labels)


class SpeechEncoder(nn.Module):
    """Strided 1-d convolutions over a waveform, group norm, and one attention layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 10, stride=5)
        self.norm = nn.GroupNorm(4, 16)
        self.conv2 = nn.Conv1d(16, 32, 3, stride=2)
        self.position = nn.Conv1d(32, 32, 5, padding=2, groups=8)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.out = nn.Linear(32, 12)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.conv1(wave.unsqueeze(1))))
        x = F.gelu(self.conv2(x))
        x = (x + F.gelu(self.position(x))).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return F.log_softmax(self.out(x), dim=-1)


class DropoutNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.dropout(F.gelu(self.first(x)), 0.2)
        return F.dropout(self.second(hidden), 0.5) + torch.rand(64)


def mlp() -> Case:
    x = torch.randn(16, 32)
    return CountingMlp(), lambda f: f(x).square().mean()


def cnn() -> Case:
    x, labels = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    return BatchNormCnn(), lambda f: f(x, labels)


def dropout() -> Case:
    x = torch.randn(32, 64)
    return DropoutNet(), lambda f: f(x).square().mean()


def speech() -> Case:
    wave = torch.randn(2, 800)
    return SpeechEncoder(), lambda f: f(wave).square().mean()


def llama() -> Case:
    """With gradient checkpointing, grouped-query attention and a padded row."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    ids, mask = torch.randint(0, 128, (2, 16)), torch.ones(2, 16, dtype=torch.int64)
    mask[1, 12:] = 0
    return model, lambda f: f(input_ids=ids, attention_mask=mask, labels=ids).loss


def gpt2() -> Case:
    """Tied input and output embeddings, dropout on."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=128, n_embd=64, n_layer=1, n_head=4, n_positions=64, use_cache=False)
    ids = torch.randint(0, 128, (2, 16))
    return GPT2LMHeadModel(config), lambda f: f(input_ids=ids, labels=ids).loss


def _bert() -> tuple[nn.Module, torch.Tensor]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=128,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=64,
    )
    return BertForMaskedLM(config), torch.randint(0, 128, (2, 16))


def bert() -> Case:
    model, ids = _bert()
    return model, lambda f: f(input_ids=ids, labels=ids).loss


def bert_inference() -> Case:
    model, ids = _bert()
    model.eval()

    def step(f: Any) -> torch.Tensor:
        with torch.inference_mode():
            return f(input_ids=ids).logits

    return model, step


def t5() -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=128,
        d_model=64,
        d_kv=16,
        d_ff=96,
        num_layers=1,
        num_heads=4,
        decoder_start_token_id=0,
        use_cache=False,
    )
    ids, labels = torch.randint(1, 128, (2, 12)), torch.randint(1, 128, (2, 9))
    return T5ForConditionalGeneration(config), lambda f: f(input_ids=ids, labels=labels).loss


def vit() -> Case:
    """Under autocast to bfloat16."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=96,
        image_size=32,
        patch_size=8,
        num_labels=10,
    )
    pixels, labels = torch.randn(2, 3, 32, 32), torch.randint(0, 10, (2,))

    def step(f: Any) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return f(pixel_values=pixels, labels=labels).loss

    return ViTForImageClassification(config), step


def mixtral() -> Case:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    config._experts_implementation = "batched_mm"
    ids = torch.randint(0, 128, (2, 12))
    return MixtralForCausalLM(config), lambda f: f(input_ids=ids, labels=ids).loss


CASES: dict[str, Callable[[], Case]] = {
    "mlp": mlp,
    "cnn": cnn,
    "dropout": dropout,
    "speech": speech,
    "llama": llama,
    "gpt2": gpt2,
    "bert": bert,
    "bert_inference": bert_inference,
    "t5": t5,
    "vit": vit,
    "mixtral": mixtral,
}
