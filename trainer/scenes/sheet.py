"""A contact sheet: a dozen training scenes with their boxes and captions, to judge by eye."""

import textwrap
from itertools import islice
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from trainer.scenes import captions
from trainer.scenes.write import SceneSettings, scenes_of
from trainer.storage import replacing

_COLUMNS, _ROWS = 4, 3
_PICTURE, _TEXT, _MARGIN = 300, 130, 18  # pixels


def write_sheet(path: Path, settings: SceneSettings) -> None:
    """Draw the first scenes of the first training shard.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    cell = _PICTURE + _MARGIN, _PICTURE + _TEXT + _MARGIN
    sheet = Image.new("RGB", (_COLUMNS * cell[0] + _MARGIN, _ROWS * cell[1] + _MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    scale = _PICTURE / settings.side
    for number, (rng, scene) in enumerate(
        islice(scenes_of(settings, "train", 0), _COLUMNS * _ROWS)
    ):
        left = _MARGIN + number % _COLUMNS * cell[0]
        top = _MARGIN + number // _COLUMNS * cell[1]
        picture = Image.fromarray(scene.pixels).resize(
            (_PICTURE, _PICTURE), Image.Resampling.LANCZOS
        )
        sheet.paste(picture, (left, top))
        # In the order in which the shard asks the generator, so that the texts are the same.
        text = captions.caption(rng, scene, is_exact=False)
        phrases: list[str] = []
        for group in scene.groups:
            phrases += captions.phrases(rng, group, settings.side, is_exact=False)
            for box in group.boxes:
                corners = [left + box[0] * scale, top + box[1] * scale]
                corners += [left + box[2] * scale, top + box[3] * scale]
                draw.rectangle(corners, outline=(255, 0, 90), width=2)
        rng.shuffle(phrases)  # as the shard shuffles its parts
        lines = textwrap.wrap(text, 44) + textwrap.wrap(" | ".join(phrases), 44)
        draw.multiline_text((left, top + _PICTURE + 4), "\n".join(lines), "black", font)
    with replacing(path) as temporary:
        sheet.save(temporary, "PNG")
