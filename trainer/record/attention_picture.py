"""A drawing of held-out pictures: what is clear is where each query looks."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import numpy as np
import numpy.typing as npt
import tokenizers
from PIL import Image, ImageDraw, ImageFont
from tokenizers import decoders

from trainer.health.attention import Glance

Pixels = npt.NDArray[np.uint8]

_CELL, _GAP = 150, 10  # pixels
_LETTERS, _LINES, _LINE_HEIGHT = 24, 3, 14  # under each cell
_LEAST = 0.2  # of a patch that is seen where a query does not look at all
_GREY = 150.0  # the rest of it: neither dark nor light pictures lie near it


def draw(glance: Glance, texts: Sequence[str]) -> Pixels:
    """One row each picture: itself, then once for each of its queries, which stands below.

    Args:
        glance: What is shown.
        texts: Of its queries.

    Returns:
        ``(height, width, 3)``.
    """
    columns = 1 + max(glance.owner.count(number) for number in range(len(glance.pictures)))
    high = _CELL + _LINES * _LINE_HEIGHT + _GAP
    size = (columns * (_CELL + _GAP) + _GAP, len(glance.pictures) * high + _GAP)
    sheet = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for row, picture in enumerate(glance.pictures):
        top = _GAP + row * high
        sheet.paste(_square(picture), (_GAP, top))
        own = [query for query, owner in enumerate(glance.owner) if owner == row]
        for column, query in enumerate(own, 1):
            left = _GAP + column * (_CELL + _GAP)
            sheet.paste(_lit(picture, glance.attention[query]), (left, top))
            lines = wrap(texts[query], _LETTERS, max_lines=_LINES, placeholder=" …")
            pen.multiline_text((left, top + _CELL + 2), "\n".join(lines), "black", font, spacing=2)
    return np.asarray(sheet)


def texts_of(glance: Glance, tokenizer: Path) -> list[str]:
    """The texts of the queries, as the tokenizer's file writes them."""
    reader = tokenizers.Tokenizer.from_file(str(tokenizer))
    reader.decoder = decoders.Sequence([decoders.Replace("</w>", " "), decoders.ByteLevel()])
    return [reader.decode(list(ids), skip_special_tokens=True).strip() for ids in glance.tokens]


def _square(picture: Pixels) -> Image.Image:
    return Image.fromarray(picture).resize((_CELL, _CELL), Image.Resampling.BICUBIC)


def _lit(picture: Pixels, attention: npt.NDArray[np.float32]) -> Image.Image:
    """The picture behind a grey veil, which the most looked at patch does not have."""
    clear = _LEAST + (1 - _LEAST) * attention / max(float(attention.max()), 1e-9)
    wide = Image.fromarray(np.uint8(np.round(255 * clear))).resize(
        (_CELL, _CELL), Image.Resampling.BICUBIC
    )
    share = np.asarray(wide)[..., None] / 255.0
    return Image.fromarray(np.uint8(np.asarray(_square(picture)) * share + _GREY * (1 - share)))
