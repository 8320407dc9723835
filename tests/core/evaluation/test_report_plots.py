import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.evaluation.measure import Finding, Measure
from core.evaluation.report import canvas, plots
from core.evaluation.report.build import build
from core.evaluation.report.details import plot_name, task_blocks
from core.evaluation.report.document import Cautions, Listing, Plot, Text
from core.evaluation.report.families import family_blocks
from core.evaluation.report.models import Model, read_models
from core.evaluation.report.svg import alone
from core.evaluation.report.sweep import sections
from core.evaluation.result import make_result, write_result

HOSTILE = "$x^{ </text><script>alert(1)</script> \N{GRINNING FACE}"

Make = Callable[..., Model]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a model of the details that its tasks kept."""
    if not canvas.can_plot():
        pytest.skip("matplotlib is of the extra eval")

    def of(
        name: str, details: dict[str, Any], measures: Sequence[Measure] = (), **about: int | str
    ) -> Model:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for task, kept in details.items():
            encoder = {"name": name, "fingerprint": name, "space": {}, "about": about}
            own = {"name": "own", "title": "own", "split": "test", "records": 9}
            data = own | {"digest": kept.get("digest", "")}
            determined_by = {"encoder": encoder, "data": data, "protocol": {}, "seed": 0}
            finding = Finding(tuple(measures), kept)
            write_result(folder, make_result(task, determined_by, finding, 1.0, "now"))
        ((model,), _) = read_models([folder])
        return model

    return of


def text_of(plot: Plot) -> str:
    root = ET.fromstring(plot.svg)
    return " ".join("".join(each.itertext()) for each in root.iter() if each.tag.endswith("text"))


DETAILS: dict[str, dict[str, Any]] = {
    "retrieval/own": {
        "recall_curve": {"text to image": [[1, 0.1], [10, 0.4], [100, 1.0]], "image to text": []}
    },
    "chains/own": {
        "radii": {level: {"edges": [0, 1, 2], "counts": [3, 1]} for level in ("general", HOSTILE)}
    },
    "multilabel/own": {
        "classes": {"spaced": [{"name": HOSTILE, "ap": 0.5}, {"name": "dog", "ap": 0.7}]}
    },
    "parts/own": {"histogram": {"1": 5, "2": 3, "7": 1}},
}


@pytest.mark.parametrize("task", DETAILS)
def test_details_become_a_plot_that_names_every_model(make: Make, task: str) -> None:
    models = [make(name, {task: DETAILS[task]}) for name in ("one", HOSTILE)]
    (plot,) = [block for block in task_blocks(task, models) if isinstance(block, Plot)]
    assert "<script>" not in plot.svg
    assert plot.name.startswith(plot_name(task, ""))
    ET.fromstring(alone(plot.svg))
    if not task.startswith("parts"):  # which are of the data alone
        assert "one" in text_of(plot)
        assert "$x^{" in text_of(plot)


def test_the_same_results_draw_the_same_plot(make: Make) -> None:
    model = make("one", DETAILS)
    first, again = (task_blocks("chains/own", [model]) for _ in range(2))
    assert first == again


def test_classes_are_listed_where_they_are_too_many_to_draw(make: Make) -> None:
    classes = [{"name": f"class {row}", "ap": row / 100} for row in range(80)]
    models = [make(name, {"multilabel/own": {"classes": {"a": classes}}}) for name in "ab"]
    (listing,) = task_blocks("multilabel/own", models)
    assert isinstance(listing, Listing)
    assert listing.items[0][0] == "a / b"
    assert listing.items[0][1][0] == "class 79: 79.0 / 79.0"


def test_a_class_without_a_figure_is_in_no_list(make: Make) -> None:
    classes = [{"name": "dog", "ap": 0.5}, {"name": "unseen", "ap": math.nan}]
    (plot,) = task_blocks(
        "multilabel/own", [make("one", {"multilabel/own": {"classes": {"a": classes}}})]
    )
    assert isinstance(plot, Plot)
    assert "dog" in text_of(plot)
    assert "unseen" not in text_of(plot)


def test_data_sets_share_a_picture_of_their_reliability(make: Make) -> None:
    bins = [{"count": n, "confidence": 0.2, "accuracy": 0.1} for n in (0, 3)]
    details = {f"classification/{name}": {"reliability": {"group": bins}} for name in "abcd"}
    (plot,) = family_blocks("classification", list(details), [make("one", details)])
    assert isinstance(plot, Plot)
    assert all(f" {name} " in f" {text_of(plot)} " for name in "abcd")


def test_prompts_show_each_template_and_name_the_best_and_the_worst(make: Make) -> None:
    templates = [
        {"set": "official", "template": template, "accuracy": accuracy}
        for template, accuracy in (("a {}", 0.2), ("the {}", 0.6), (HOSTILE, 0.4))
    ]
    measures = [Measure("prompt sets", "official", 0.5, 0.1, 9)]
    model = make("one", {"prompts/own": {"templates": templates}}, measures)
    plot, _, table = family_blocks("prompts", ["prompts/own"], [model])
    assert isinstance(plot, Plot)
    assert "official" in text_of(plot)
    cells = [row.cells for row in table.rows]  # type: ignore[union-attr]
    assert cells == [("one, best", "60.0", "the {}"), ("one, worst", "20.0", "a {}")]


RECALLS = [Measure("average", k, 0.5, 0.1, 9, low=0.4, high=0.6) for k in ("R@1", "R@10")]


def swept(make: Make, cap: int, recipe: str, digest: str = "", **about: int | str) -> Model:
    details = {"retrieval/own": {"digest": digest}}
    return make(f"{recipe} at step 9", details, RECALLS, max_parts=cap, recipe=recipe, **about)


def test_models_of_different_part_caps_make_the_sweep(make: Make) -> None:
    models = [swept(make, 64, "parts-all"), swept(make, 2, "parts-2"), swept(make, 5, "demo")]
    (part,) = sections(models)
    (plot,) = [block for block in part.blocks if isinstance(block, Plot)]
    assert "2 all" in text_of(plot)
    assert sections(models[:1]) == []


@pytest.mark.parametrize(
    "other",
    [
        {"recipe": "demo"},
        {"recipe": "parts-all-smoke"},
        {"seed": 1},
        {"step": 20},
        {"digest": "other"},
    ],
)
def test_models_that_differ_in_more_than_parts_make_no_sweep(
    make: Make, other: dict[str, Any]
) -> None:
    usual: dict[str, Any] = {"recipe": "parts-all", "seed": 0, "step": 10}
    one = swept(make, 2, **usual | {"recipe": "parts-2"})
    assert sections([one, swept(make, 64, **usual)])
    assert not sections([one, swept(make, 64, **usual | other)])


def test_two_families_of_recipes_make_two_sweeps(make: Make) -> None:
    models = [swept(make, cap, f"{stem}-{cap}") for stem in ("large", "small") for cap in (2, 3)]
    (part,) = sections(models)
    names = [block.name for block in part.blocks if isinstance(block, Plot)]
    assert len(names) == len({*names}) == 2


def test_a_remark_that_not_all_share_says_whose_it_is(make: Make) -> None:
    said = {"one": ["ours", "both"], "two": ["both"]}
    models = [make(name, {"chains/own": {"notes": notes}}) for name, notes in said.items()]
    models.append(make("elsewhere", {"pairs/own": {}}))
    assert task_blocks("chains/own", models) == [Text("one: ours"), Text("both")]


def test_what_does_not_apply_says_why(make: Make) -> None:
    model = make("flat", {"chains/own": {"not_applicable": "the sphere has no cones"}})
    assert task_blocks("chains/own", [model]) == [Cautions(("flat: the sphere has no cones",))]


def test_paths_are_listed_with_the_name_of_their_picture(make: Make) -> None:
    steps = [
        {"text": "a dog", "at": 1.0, "radius": 1.25},
        {"text": "[root]", "at": 0.0, "radius": None},
    ]
    details = {"traversals": [{"picture": "dog.jpg", "steps": steps}]}
    (listing,) = task_blocks("traversal/own", [make("one", {"traversal/own": details})])
    assert isinstance(listing, Listing)
    assert listing.items == (("dog.jpg", ("a dog (1.00, radius 1.250)", "[root] (0.00)")),)


def test_paths_that_meet_nothing_are_counted(make: Make) -> None:
    root = {"text": "[root]", "at": 1.0, "radius": 0.0}
    walks = [{"picture": name, "steps": [root]} for name in ("a.jpg", "b.jpg")]
    model = make("one", {"traversal/own": {"traversals": walks}})
    (listing,) = task_blocks("traversal/own", [model])
    assert isinstance(listing, Listing)
    assert listing.items == (("2 paths meet no text, the root alone", ()),)


def test_without_matplotlib_the_report_says_what_to_install(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make("one", DETAILS)
    for module in ("build", "details", "families", "sweep"):
        monkeypatch.setattr(f"core.evaluation.report.{module}.can_plot", lambda: False)
    report = build([model], None)
    assert report.without_plots
    assert not report.document.plots()
    said = [b for s in report.document.sections for b in s.blocks if isinstance(b, Cautions)]
    assert any("pip install '.[eval]'" in text for b in said for text in b.texts)


def test_a_plot_takes_its_text_as_it_is(make: Make) -> None:
    make("one", {"a/own": {}})
    panels = {HOSTILE: [plots.Series(0, HOSTILE, [1, 2], [1, 2])]}
    plot = plots.curves("name", "caption", panels, (plots.Axis(HOSTILE), plots.Axis("y")))
    assert "$x^{" in text_of(plot)
