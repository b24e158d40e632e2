"""Transformers, a recurrent net, and the small ones, in plain torch with the published layer sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as fn
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        x = fn.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        return self.out(x.transpose(1, 2).reshape(b, t, w))


class Layer(nn.Module):
    """A transformer layer, with the norm before (ViT, GPT-2) or after (BERT) each half."""

    def __init__(self, width: int, heads: int, *, causal: bool = False, pre: bool = True, dropout: float = 0.1) -> None:
        super().__init__()
        self.pre = pre
        self.attention = Attention(width, heads, causal=causal, dropout=dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.pre:
            x = x + self.drop(self.attention(self.norm1(x)))
            return x + self.drop(self.mlp(self.norm2(x)))
        x = self.norm1(x + self.drop(self.attention(x)))
        return self.norm2(x + self.drop(self.mlp(x)))


class ViT(nn.Module):
    """ViT-S/16 (width 384, 12 layers, 6 heads) on 224 × 224."""

    def __init__(
        self, width: int = 384, depth: int = 12, heads: int = 6, size: int = 224, patch: int = 16, classes: int = 1000
    ) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList([Layer(width, heads, dropout=0.0) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Bert(nn.Module):
    """BERT-base with a masked-language head whose weights are the embedding's."""

    def __init__(
        self, width: int = 768, depth: int = 12, heads: int = 12, words: int = 30522, length: int = 512
    ) -> None:
        super().__init__()
        self.words, self.positions, self.types = (
            nn.Embedding(words, width),
            nn.Embedding(length, width),
            nn.Embedding(2, width),
        )
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList([Layer(width, heads, pre=False) for _ in range(depth)])
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.words(x) + self.positions.weight[: x.shape[1]] + self.types.weight[0]
        x = self.drop(self.norm(embedded))
        for block in self.blocks:
            x = block(x)
        return fn.linear(self.transform(x), self.words.weight)


class Gpt2(nn.Module):
    """GPT-2 of 124 million parameters, head tied to the embedding."""

    def __init__(
        self, width: int = 768, depth: int = 12, heads: int = 12, words: int = 50257, length: int = 1024
    ) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList([Layer(width, heads, causal=True) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.words(x) + self.positions.weight[: x.shape[1]])
        for block in self.blocks:
            x = block(x)
        return fn.linear(self.norm(x), self.words.weight)


class DecodeLayer(nn.Module):
    """A Llama layer for one token: RMS norms, rotary positions, grouped keys and values in a static cache, gated MLP."""

    def __init__(self, width: int, heads: int, groups: int, inner: int, batch: int, length: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.register_buffer("keys", torch.zeros(batch, groups, length, self.size))
        self.register_buffer("values", torch.zeros(batch, groups, length, self.size))

    def forward(self, x: Tensor, position: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        b = x.shape[0]
        h = self.norm1(x)
        q = self._rotate(self.q(h).view(b, self.heads, 1, self.size), rotation)
        k, v = self.kv(h).view(b, 2, self.groups, 1, self.size).unbind(1)
        self.keys.index_copy_(2, position, self._rotate(k, rotation).to(self.keys.dtype))
        self.values.index_copy_(2, position, v.to(self.values.dtype))
        repeat = self.heads // self.groups
        keys, values = self.keys.repeat_interleave(repeat, 1), self.values.repeat_interleave(repeat, 1)
        a = fn.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + self.out(a.reshape(b, 1, -1))
        h = self.norm2(x)
        return x + self.down(fn.silu(self.gate(h)) * self.up(h))

    @staticmethod
    def _rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = rotation
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class LlamaDecode(nn.Module):
    """One decoding step of a Llama-like model (1B by default): token and position in, next token out, cache in place."""

    def __init__(
        self, batch: int, width: int = 2048, depth: int = 16, heads: int = 32, groups: int = 8, inner: int = 8192,
        words: int = 128256, length: int = 1024,
    ) -> None:  # fmt: skip
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([DecodeLayer(width, heads, groups, inner, batch, length) for _ in range(depth)])
        self.norm = nn.RMSNorm(width)
        half = width // heads // 2
        angles = torch.outer(torch.arange(length).float(), 500_000.0 ** (-torch.arange(half).float() / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("places", torch.arange(length))

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        x = self.words(token)
        rotation = (self.cos[position].to(x.dtype), self.sin[position].to(x.dtype))
        mask = (self.places <= position).view(1, 1, 1, -1)
        for block in self.blocks:
            x = block(x, position, rotation, mask)
        return fn.linear(self.norm(x), self.words.weight).argmax(-1)


class Lstm(nn.Module):
    """A language model of two LSTM layers. No dropout between them: cuDNN keeps its state outside the graph's sight."""

    def __init__(self, width: int = 512, words: int = 10_000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.words(x))[0])


class Mlp(nn.Module):
    """The two-layer net of Gaudi's HPU Graphs example, on 28 × 28 images, with one more layer in between."""

    def __init__(self, width: int = 512, classes: int = 10) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(784, width), nn.Linear(width, width)])
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.head(x)


class Dlrm(nn.Module):
    """A recommender: a bag for each sparse feature, an MLP for the dense ones, pairwise products, an MLP on top."""

    def __init__(self, tables: int = 26, rows: int = 20_000, width: int = 64, dense: int = 13) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(dense, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.register_buffer("pairs", torch.triu_indices(tables + 1, tables + 1, 1))
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 2)
        )

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        low = self.bottom(dense)
        vectors = torch.stack([low, *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        chosen = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([low, chosen], 1))
