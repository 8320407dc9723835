"""The CLIP vocabulary, from the merges that open_clip packages, as a `tokenizer.json`."""

import gzip
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from core.errors import DataError
from core.text import END, START
from trainer.storage import replacing

VOCABULARY_SIZE = 49_408
_WORD_END = "</w>"
_BYTES = 256
_MERGES = VOCABULARY_SIZE - 2 * _BYTES - 2

# A clitic, a run of letters, one digit, or a run of anything else.
_PIECE = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"


def write_tokenizer(path: Path) -> None:
    """Write the tokenizer of CLIP: byte-pair encoding, 49,408 entries, start and end last.

    It expects text that `core.text.clean` has cleaned.

    Raises:
        DataError: open_clip packages no merges, or not enough of them.
    """
    merges = _read_merges()
    tokenizer = Tokenizer(BPE(_vocabulary(merges), merges, end_of_word_suffix=_WORD_END))
    tokenizer.pre_tokenizer = Sequence([
        Split(Regex(_PIECE), behavior="removed", invert=True),
        ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    # As in CLIP, a text that spells out a special token gets it.
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in (START, END)])
    with replacing(path) as temporary:
        temporary.write_text(tokenizer.to_str(), encoding="utf-8")


def _vocabulary(merges: list[tuple[str, str]]) -> dict[str, int]:
    """Ids of the bytes, of the bytes that end a word, of the merges, of start and end."""
    letters = _byte_letters()
    tokens = [*letters, *(letter + _WORD_END for letter in letters)]
    tokens += [left + right for left, right in merges]
    tokens += [START, END]
    return {token: index for index, token in enumerate(tokens)}


def _byte_letters() -> list[str]:
    """The letters that stand for bytes.

    Those that print in Latin-1 stand for themselves and come first; the others follow in order,
    as U+0100 and on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = _BYTES - len(printable)
    return [*map(chr, printable), *(chr(_BYTES + index) for index in range(others))]


def _read_merges() -> list[tuple[str, str]]:
    package = find_spec("open_clip")  # found, not imported: that would load torch
    if package is None or package.origin is None:
        raise DataError("open_clip is not installed: pip install '.[trainer]' in a checkout")
    file = Path(package.origin).with_name("bpe_simple_vocab_16e6.txt.gz")
    if not file.is_file():
        raise DataError(f"{file}: missing; reinstall open_clip_torch")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        next(lines)  # the version
        merges = [(left, right) for left, right in map(str.split, islice(lines, _MERGES))]
    if len(merges) != _MERGES:
        raise DataError(f"{file}: {len(merges):,} merges instead of {_MERGES:,}")
    return merges
