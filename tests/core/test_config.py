"""Files that extend files, overrides on top of them, and what is said when they are wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from core.config import Section, load
from core.errors import ConfigError


class Oak(Section):
    kind: Literal["oak"]
    acorns: int = Field(0, ge=0)


class Pine(Section):
    kind: Literal["pine"]
    cones: int = 1
    needles: int = 2


class Soil(Section):
    depth: float = Field(1.0, gt=0)
    layers: tuple[int, ...] = ()


class Garden(Section):
    name: str = "garden"
    soil: Soil = Soil()
    tree: Annotated[Oak | Pine, Field(discriminator="kind")] = Oak(kind="oak")


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below a folder of the test's own."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_an_extended_file_holds_where_its_user_is_silent(write: Write) -> None:
    write("below.toml", 'name = "below"\n[soil]\ndepth = 2.0\nlayers = [1, 2]')
    top = write("top.toml", 'extends = "below.toml"\nname = "top"\n[soil]\nlayers = [3]')
    assert load(Garden, top) == Garden(name="top", soil=Soil(depth=2.0, layers=(3,)))


def test_later_files_of_a_list_hold_before_earlier_ones(write: Write) -> None:
    write("one.toml", 'name = "one"\n[soil]\ndepth = 1.5')
    write("two.toml", 'name = "two"')
    top = write("top.toml", 'extends = ["one.toml", "two.toml"]')
    assert load(Garden, top) == Garden(name="two", soil=Soil(depth=1.5))


def test_paths_are_seen_from_the_folder_of_the_file_that_names_them(write: Write) -> None:
    write("deep.toml", "[soil]\ndepth = 3.0")
    write("parts/middle.toml", 'extends = "../deep.toml"')
    top = write("mine/top.toml", 'extends = "../parts/middle.toml"')
    assert load(Garden, top).soil.depth == 3.0


def test_a_table_of_another_kind_replaces_the_one_below_whole(write: Write) -> None:
    write("below.toml", '[tree]\nkind = "pine"\ncones = 7\nneedles = 8')
    other = write("other.toml", 'extends = "below.toml"\n[tree]\nkind = "oak"')
    assert load(Garden, other).tree == Oak(kind="oak")
    same = write("same.toml", 'extends = "below.toml"\n[tree]\nkind = "pine"\ncones = 9')
    assert load(Garden, same).tree == Pine(kind="pine", cones=9, needles=8)
    silent = write("silent.toml", 'extends = "below.toml"\n[tree]\nneedles = 9')
    assert load(Garden, silent).tree == Pine(kind="pine", cones=7, needles=9)


@pytest.mark.parametrize(
    "overrides", [["tree.kind=oak", "tree.acorns=3"], ["tree.acorns=3", "tree.kind=oak"]]
)
def test_overrides_come_on_top_in_any_order(write: Write, overrides: list[str]) -> None:
    top = write("top.toml", '[tree]\nkind = "pine"\ncones = 7')
    assert load(Garden, top, overrides).tree == Oak(kind="oak", acorns=3)


def test_of_two_overrides_of_a_key_the_last_one_holds(write: Write) -> None:
    top = write("top.toml", "")
    assert load(Garden, top, ["soil.depth=2", "soil.depth=3"]).soil.depth == 3.0


def test_a_file_that_ships_is_found_where_none_lies_beside(write: Write, tmp_path: Path) -> None:
    write("shipped/base.toml", 'name = "shipped"')
    top = write("mine/top.toml", 'extends = "base.toml"')
    assert load(Garden, top, shipped=tmp_path / "shipped").name == "shipped"
    write("mine/base.toml", 'name = "own"')
    assert load(Garden, top, shipped=tmp_path / "shipped").name == "own"


def test_a_circle_is_told_with_its_files(write: Write) -> None:
    one = write("one.toml", 'extends = "two.toml"')
    write("two.toml", 'extends = "one.toml"')
    with pytest.raises(ConfigError, match=r"one\.toml -> .*two\.toml -> .*one\.toml: extends its"):
        load(Garden, one)


def test_a_missing_file_is_told_with_those_that_lead_to_it(write: Write) -> None:
    top = write("top.toml", 'extends = "middle.toml"')
    write("middle.toml", 'extends = "nowhere.toml"')
    message = r"top\.toml -> .*middle\.toml -> .*nowhere\.toml: no such file"
    with pytest.raises(ConfigError, match=message):
        load(Garden, top)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("extends = 3", r"top\.toml: extends 3: give a file, or a list of them"),
        ("extends = [1]", r"top\.toml: extends \[1\]: give a file"),
        ('extends = "/etc/base.toml"', r"extends '/etc/base\.toml': give the path from this file"),
        ('extends = "broken.toml"', r"top\.toml -> .*broken\.toml: not valid TOML"),
    ],
)
def test_what_cannot_be_extended_is_named(write: Write, line: str, message: str) -> None:
    write("broken.toml", "[soil")
    with pytest.raises(ConfigError, match=message):
        load(Garden, write("top.toml", line))


@pytest.mark.parametrize(
    ("below", "message"),
    [
        ("[soil]\ndepth = 0.0", r"soil\.depth: .*greater than 0.* \(set in .*below\.toml\)$"),
        ("[soil]\nwidth = 1", r"soil\.width: unknown key; .*depth, layers \(set in .*below\.toml"),
        ('[soil]\nlayers = ["a"]', r"soil\.layers\.0: .*integer.*\(set in .*below\.toml\)$"),
    ],
)
def test_a_wrong_value_is_told_with_the_file_that_set_it(
    write: Write, below: str, message: str
) -> None:
    write("below.toml", below)
    top = write("top.toml", 'extends = "below.toml"')
    with pytest.raises(ConfigError, match=message) as caught:
        load(Garden, top)
    assert str(caught.value).startswith(f"{top}:\n  ")


def test_a_wrong_override_is_not_laid_at_the_door_of_a_file(write: Write) -> None:
    write("below.toml", "[soil]\ndepth = 2.0")
    top = write("top.toml", 'extends = "below.toml"')
    with pytest.raises(ConfigError, match=r"soil\.depth: .*\(got -1\)$"):
        load(Garden, top, ["soil.depth=-1"])


def test_a_table_without_its_kind_is_told_the_kinds(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"tree: needs a kind, one of: oak, pine"):
        load(Garden, write("top.toml", "[tree]\nacorns = 3"))


def test_an_override_below_a_value_is_refused(write: Write) -> None:
    with pytest.raises(ConfigError, match="'soil' is a value, not a section"):
        load(Garden, write("top.toml", ""), ["soil=1", "soil.depth=2"])
