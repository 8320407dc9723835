"""A scene -> English: a caption of one or two sentences, and a phrase for every thing."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from core.prompts import article
from trainer.scenes.art import Thing
from trainer.scenes.compose import Backdrop, Box, Group, Scene

_NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}
_SMALL, _LARGE = 0.29, 0.5  # longest side, as a share of the scene's
_NEAR = 0.1  # gap between neighbours, as a share of the scene's side
_SIZE_SHARE = 0.6  # of the mentions whose size has a word
_GENERAL_SHARE = 0.08  # of phrases, and of captions where general words are wanted
_BARE_SHARE = 0.3  # of phrases: the name alone, or "a photo of" it
_FRAMES = (
    "{list} on {ground}.",
    "{list} against {ground}.",
    "There {is_} {list} on {ground}.",
    "A picture of {list} on {ground}.",
    "On {ground}, there {is_} {list}.",
    "This picture shows {list} against {ground}.",
    "{list}. Behind {them} is {ground}.",
    "There {is_} {list}. The background {shade}.",
    "{list}. The background {shade}.",
)


@dataclass(frozen=True)
class Mention:
    """How a caption speaks of a group: "three small apples", and whether that is plural."""

    group: Group
    text: str
    is_plural: bool
    is_general: bool = False


def caption(rng: random.Random, scene: Scene, *, is_exact: bool) -> str:
    """One or two true sentences about a scene, its things in shuffled order.

    Args:
        rng: Decides order, wording and what is said beyond things and counts.
        scene: What is described.
        is_exact: Name every thing and the background. Otherwise a few captions call one
            thing by its group or kingdom, or keep silent about the background.
    """
    side = scene.pixels.shape[0]
    groups = list(scene.groups)
    rng.shuffle(groups)
    mentions = [_mention(rng, group, side) for group in groups]
    if not is_exact and rng.random() < _GENERAL_SHARE:
        mentions = _generalise(rng, mentions)
    if not is_exact and rng.random() < 0.04:
        return _sentence(_join([mention.text for mention in mentions]) + ".")
    if len(groups) == 2 and rng.random() < 0.5:
        relations = relations_of(groups[0], groups[1], side)
        if relations:
            subject = f"{mentions[0].text} {rng.choice(relations)} {mentions[1].text}"
            return _sentence(f"{subject} on {ground(scene.backdrop)}.")
    text = _frame(rng, mentions, scene.backdrop)
    named = [mention.group for mention in mentions if not mention.is_general]
    if len(named) > 1 and text.count(".") == 1 and rng.random() < 0.6:
        text += _relation_sentence(rng, named, side)
    return text


def phrases(rng: random.Random, group: Group, side: int, *, is_exact: bool) -> list[str]:
    """A phrase for every box of a group: "a small cat", "a photo of a cat", "cat"."""
    return [_phrase(rng, group.thing, box, side, is_exact=is_exact) for box in group.boxes]


def relations_of(one: Group, other: Group, side: int) -> list[str]:
    """The spatial words that are true of all of ``one`` against all of ``other``.

    "above" and its like need boxes that do not overlap along that axis and lie farther apart
    along it than across it; "next to" is for single things side by side with a small gap.
    """
    pairs = [(a, b) for a in one.boxes for b in other.boxes]
    found = []
    if all(_is_before(a, b, axis=1) for a, b in pairs):
        found.append("above")
    if all(_is_before(b, a, axis=1) for a, b in pairs):
        found.append("below")
    if all(_is_before(a, b, axis=0) for a, b in pairs):
        found.append("to the left of")
    if all(_is_before(b, a, axis=0) for a, b in pairs):
        found.append("to the right of")
    if len(pairs) == 1 and _is_beside(*pairs[0], side):
        found.append("next to")
    return found


def size_word(boxes: Sequence[Box], side: int) -> str | None:
    """Say "small" or "large" when it is true of every box, by its longest side."""
    longest = [max(box[2] - box[0], box[3] - box[1]) / side for box in boxes]
    if max(longest) <= _SMALL:
        return "small"
    if min(longest) >= _LARGE:
        return "large"
    return None


def noun_phrase(thing: Thing, count: int, adjective: str | None = None) -> str:
    """Write "a small apple", "two apples", "some popcorn", "two pairs of scissors"."""
    before = f"{adjective} " if adjective else ""
    if thing.form == "pair":
        return (
            f"a {before}pair of {thing.name}"
            if count == 1
            else f"{_NUMBERS[count]} {before}pairs of {thing.name}"
        )
    if thing.form == "mass":
        return (
            f"some {thing.name}"
            if count == 1
            else f"{_NUMBERS[count]} {before}pieces of {thing.name}"
        )
    if count == 1:
        return _one(f"{before}{thing.name}")
    return f"{_NUMBERS[count]} {before}{thing.plural}"


def ground(backdrop: Backdrop) -> str:
    """The background as a noun phrase: "a red background with white stripes"."""
    first, second = backdrop.colours[0], backdrop.colours[-1]
    if backdrop.kind == "plain":
        return f"{_one(first)} background"
    if backdrop.kind == "noise":
        return f"a grainy {first} background"
    if backdrop.kind == "gradient":
        return f"a background fading from {first} to {second}"
    return f"{_one(first)} background with {second} {backdrop.kind}"


def _one(noun: str) -> str:
    return f"{article(noun)} {noun}"


def _shade(backdrop: Backdrop) -> str:
    """What the background is or does: "is light blue", "is red with white stripes"."""
    first, second = backdrop.colours[0], backdrop.colours[-1]
    return {
        "plain": f"is {first}",
        "noise": f"is a grainy {first}",
        "gradient": f"fades from {first} to {second}",
    }.get(backdrop.kind, f"is {first} with {second} {backdrop.kind}")


def _mention(rng: random.Random, group: Group, side: int) -> Mention:
    count = len(group.boxes)
    adjective = size_word(group.boxes, side) if rng.random() < _SIZE_SHARE else None
    return Mention(group, noun_phrase(group.thing, count, adjective), count > 1)


def _generalise(rng: random.Random, mentions: list[Mention]) -> list[Mention]:
    """One single thing called by its group or kingdom instead of its name."""
    single = [index for index, mention in enumerate(mentions) if not mention.is_plural]
    if not single:
        return mentions
    chosen = rng.choice(single)
    thing = mentions[chosen].group.thing
    general = rng.choice((thing.group_phrase, thing.kingdom_phrase))
    mentions[chosen] = Mention(mentions[chosen].group, general, is_plural=False, is_general=True)
    return mentions


def _frame(rng: random.Random, mentions: list[Mention], backdrop: Backdrop) -> str:
    is_one = len(mentions) == 1 and not mentions[0].is_plural
    text = rng.choice(_FRAMES).format(
        list=_join([mention.text for mention in mentions]),
        ground=ground(backdrop),
        shade=_shade(backdrop),
        is_="are" if mentions[0].is_plural else "is",
        them="it" if is_one else "them",
    )
    return _sentence(text)


def _relation_sentence(rng: random.Random, groups: list[Group], side: int) -> str:
    one, other = rng.sample(groups, 2)
    relations = relations_of(one, other, side)
    if not relations:
        return ""
    verb = "is" if len(one.boxes) == 1 and one.thing.form != "pair" else "are"
    return f" The {_bare(one)} {verb} {rng.choice(relations)} the {_bare(other)}."


def _bare(group: Group) -> str:
    """The group after "the"."""
    if len(group.boxes) == 1 or group.thing.form == "pair":
        return group.thing.name
    return f"pieces of {group.thing.name}" if group.thing.form == "mass" else group.thing.plural


def _phrase(rng: random.Random, thing: Thing, box: Box, side: int, *, is_exact: bool) -> str:
    draw = rng.random()
    if draw < _BARE_SHARE / 2:
        return thing.name
    if draw < _BARE_SHARE:
        name = thing.name if thing.form == "mass" else noun_phrase(thing, 1)
        return f"a photo of {name}"
    if not is_exact and draw < _BARE_SHARE + _GENERAL_SHARE:
        return rng.choice((thing.group_phrase, thing.kingdom_phrase))
    adjective = size_word((box,), side) if rng.random() < _SIZE_SHARE else None
    return noun_phrase(thing, 1, adjective)


def _is_before(one: Box, other: Box, axis: int) -> bool:
    """Whether ``one`` ends where ``other`` begins or sooner, mainly along this axis."""
    along = _centre(other, axis) - _centre(one, axis)
    across = abs(_centre(other, 1 - axis) - _centre(one, 1 - axis))
    return one[axis + 2] <= other[axis] + 1 and along > across


def _is_beside(one: Box, other: Box, side: int) -> bool:
    gap = max(one[0], other[0]) - min(one[2], other[2])
    shared = min(one[3], other[3]) - max(one[1], other[1])
    least = min(one[3] - one[1], other[3] - other[1])
    return -1 <= gap <= _NEAR * side and shared >= 0.5 * least


def _centre(box: Box, axis: int) -> float:
    return (box[axis] + box[axis + 2]) / 2


def _join(items: list[str]) -> str:
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])} and {items[-1]}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
