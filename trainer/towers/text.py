"""The text encoder: tokens -> states."""

from collections.abc import Sequence

import open_clip.transformer
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainer.sections import TextTower as TextSection

VOCABULARY = 49_408
"""Entries of the CLIP vocabulary."""


class TextTower(nn.Module):
    """open_clip's CLIP transformer, run over texts of mixed lengths.

    Its weights start as MERU's or as those of Hugging Face's CLIPTextModel. Its activation is
    the exact GELU of the former or the quick one of the latter, x * sigmoid(1.702 x).

    All layers but the attention work on single tokens, so the tokens of all texts stand in one
    row of the batch and padding is never computed with; attention runs once per length.
    """

    def __init__(self, section: TextSection) -> None:
        super().__init__()
        self.transformer = open_clip.transformer.TextTransformer(
            context_length=section.context_length,
            vocab_size=VOCABULARY,
            width=section.width,
            heads=section.heads,
            layers=section.layers,
            output_dim=None,
            act_layer=_ACTIVATIONS[section.activation],
        )
        if section.init == "hf":
            _start_as_hugging_face(self.transformer)
        layers = self.transformer.transformer
        layers.resblocks = nn.ModuleList(_Block(block) for block in layers.resblocks)
        self._recomputes = False
        self.width = section.width
        self.context_length = section.context_length

    def forward(self, *groups: Tensor) -> Tensor:
        """States at the end token, ``(texts, width)``, of groups of ``(texts, length)`` ids.

        Attention is causal, so that what follows the end token changes nothing: any padding
        gives the same state.
        """
        tower = self.transformer
        positions = tower.positional_embedding
        x = tower.token_embedding(torch.cat([group.flatten() for group in groups]))
        x = x + torch.cat(
            [positions[: group.shape[1]].repeat(group.shape[0], 1) for group in groups]
        )
        shapes = [(group.shape[0], group.shape[1]) for group in groups]
        for block in self.blocks:
            if self._recomputes:
                x = checkpoint(block, x, shapes, use_reentrant=False)
            else:
                x = block(x, shapes)
        sizes = [texts * length for texts, length in shapes]
        ends = [
            part.unflatten(0, shape)[
                torch.arange(shape[0], device=x.device), group.argmax(-1)  # the largest id
            ]
            for part, shape, group in zip(x.split(sizes), shapes, groups, strict=True)
        ]
        state: Tensor = tower.ln_final(torch.cat(ends))
        return state

    @property
    def blocks(self) -> "list[_Block]":
        """The layers, the first one first."""
        return list(self.transformer.transformer.resblocks)

    def recompute(self) -> None:
        """From now on keep what goes into each layer, and run it again on the way back."""
        self._recomputes = True

    def compile_layers(self) -> None:
        """Compile what works on single tokens; how many there are may change from call to call."""
        for block in self.blocks:
            block.compile_halves()


_ACTIVATIONS = {"gelu": nn.GELU, "quick_gelu": open_clip.transformer.QuickGELU}


def _start_as_hugging_face(tower: open_clip.transformer.TextTransformer) -> None:
    """Redraw what CLIPTextModel draws otherwise than MERU.

    The attention's two deviations change places, positions are as wide as tokens, and no bias
    is drawn.
    """
    width, layers = tower.width, tower.transformer.layers
    nn.init.normal_(tower.positional_embedding, std=0.02)
    for block in tower.transformer.resblocks:
        nn.init.normal_(block.attn.in_proj_weight, std=(2 * layers * width) ** -0.5)
        nn.init.normal_(block.attn.out_proj.weight, std=width**-0.5)
        nn.init.zeros_(block.mlp.c_fc.bias)
        nn.init.zeros_(block.mlp.c_proj.bias)


class _Block(nn.Module):
    """A layer of the transformer over the tokens of all texts; its parts are open_clip's.

    The halves before and after the attention know nothing of texts, only of tokens.
    """

    def __init__(self, block: open_clip.transformer.ResidualAttentionBlock) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = block.ln_1, block.attn, block.ln_2, block.mlp
        self._halves = _before_attention, _after_attention

    def forward(self, x: Tensor, shapes: Sequence[tuple[int, int]]) -> Tensor:
        """The tokens ``(tokens, width)`` of groups of ``(texts, length)``, one layer on."""
        before, after = self._halves
        return after(self, x, _causal_attention(before(self, x), shapes, self.attn.num_heads))

    def compile_halves(self) -> None:
        """Leave the attention as it is: each new set of lengths would be compiled anew."""
        before, after = self._halves
        self._halves = torch.compile(before, dynamic=True), torch.compile(after, dynamic=True)


def _before_attention(block: _Block, x: Tensor) -> Tensor:
    """Queries, keys and values of each token, ``(tokens, 3 * width)``."""
    attention = block.attn
    return functional.linear(block.ln_1(x), attention.in_proj_weight, attention.in_proj_bias)


def _after_attention(block: _Block, x: Tensor, attended: Tensor) -> Tensor:
    x = x + block.attn.out_proj(attended)
    moved: Tensor = x + block.mlp(block.ln_2(x))
    return moved


def _causal_attention(mapped: Tensor, shapes: Sequence[tuple[int, int]], heads: int) -> Tensor:
    """What each token finds in those of its text up to itself, ``(tokens, width)``."""
    attended = []
    for part, shape in zip(
        mapped.split([texts * length for texts, length in shapes]), shapes, strict=True
    ):
        query, key, value = part.view(*shape, 3, heads, -1).permute(2, 0, 3, 1, 4)
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended.append(out.transpose(1, 2).flatten(2).flatten(0, 1))
    return torch.cat(attended)
