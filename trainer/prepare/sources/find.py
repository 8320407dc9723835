"""What a place holds: the format is found, or taken as the user says it."""

from collections.abc import Callable
from dataclasses import dataclass

from core.errors import ConfigError, DataError
from trainer.prepare.sources import coco, flickr30k, grit, jsonl, visual_genome
from trainer.prepare.sources.source import GritRules, Request, Source


@dataclass(frozen=True)
class Format:
    """How one format is recognised and read."""

    looked_for: str
    is_here: Callable[[Request], bool]
    find: Callable[[Request], Source]


FORMATS = {
    "jsonl": Format(jsonl.LOOKED_FOR, jsonl.is_here, jsonl.find),
    "grit": Format(grit.LOOKED_FOR, grit.is_here, grit.find),
    "coco": Format(coco.LOOKED_FOR, coco.is_here, coco.find),
    "flickr30k-entities": Format(flickr30k.LOOKED_FOR, flickr30k.is_here, flickr30k.find),
    "visual-genome": Format(visual_genome.LOOKED_FOR, visual_genome.is_here, visual_genome.find),
}


def find_source(request: Request, format_: str | None = None) -> Source:
    """The data set at a place.

    Args:
        request: The place, and what is wanted of it.
        format_: One of `FORMATS`; None to look.

    Raises:
        ConfigError: There is no such format, or the place holds none, or several.
        DataError: Nothing is there, or a file is missing.
    """
    if format_ is not None:
        if format_ not in FORMATS:
            raise ConfigError(f"--format {format_}: there is {', '.join(FORMATS)}")
        return _find(format_, request)
    found = [name for name, kind in FORMATS.items() if kind.is_here(request)]
    if len(found) == 1:
        return _find(found[0], request)
    if found:
        raise ConfigError(f"{request.place}: holds {' and '.join(found)}; say which with --format")
    state = "nothing here of" if request.path.exists() else "is not there; it can be one of"
    looked = "".join(f"\n  {name}: {kind.looked_for}" for name, kind in FORMATS.items())
    raise DataError(f"{request.place}: {state} what can be prepared:{looked}")


def _find(format_: str, request: Request) -> Source:
    """The data set of one format, of which nothing may be asked that only another can do."""
    if request.captions and format_ != "visual-genome":
        raise ConfigError(f"--captions is for visual-genome, and this is {format_}; leave it out")
    if request.grit != GritRules() and format_ != "grit":
        raise ConfigError(
            f"--phrases and --min-score are for grit, and this is {format_}; leave them out"
        )
    return FORMATS[format_].find(request)
