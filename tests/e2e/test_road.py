"""The whole road through the commands a user types: data, training, export, service, search."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.e2e


def hyper3(folder: Path, *words: str) -> str:
    """Run a command in a folder and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "core", *words],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def environment() -> dict[str, str]:
    return os.environ | {"COLUMNS": "160", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the smoke recipe was trained and exported."""
    place = tmp_path_factory.mktemp("road")
    hyper3(
        place, "data", "scenes", "--out", "data/smoke", "--train", "256", "--val", "40",
        "--test", "20", "--workers", "1",
    )  # fmt: skip
    hyper3(place, "train", "demo-smoke", "data.workers=0")
    hyper3(place, "export", "runs/demo-smoke", "--out", "bundles/smoke")
    return place


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A service of that bundle; it must end well when it is asked to."""
    log = folder / "service.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "core", "serve", "--bundle", "bundles/smoke",
             "--data", "items", "--port", "0"],
            cwd=folder, env=environment(), stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield _address(log, process)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()


def _address(log: Path, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        for word in log.read_text().split():
            if word.startswith("http://127.0.0.1:"):
                address = word.rstrip("/.,").removesuffix("/docs").rstrip("/")
                try:
                    if httpx.get(f"{address}/readyz", timeout=5).status_code == 200:
                        return address
                except httpx.TransportError:
                    break
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_checkpoint_bundle_and_service_measure_the_same(folder: Path, url: str) -> None:
    reports = []
    for target in ("bundles/smoke", "runs/demo-smoke", url):
        report = folder / "report.json"
        printed = hyper3(folder, "eval", target, "data/smoke/test.jsonl", "--json", str(report))
        assert "R@10" in printed
        reports.append(json.loads(report.read_text()))
    bundle, *others = reports
    for other in others:
        families = ["retrieval", "chains", "structure"]
        assert list(other) == list(bundle) == [f"{family}/smoke-test" for family in families]
        for task, found in bundle.items():
            for group, values in found["measures"].items():
                for name, value in values.items():
                    same = other[task]["measures"][group][name]["value"]
                    assert value["value"] == pytest.approx(same, abs=1e-3), (task, group, name)


def test_results_become_one_report(folder: Path) -> None:
    models = sorted(path.name for path in (folder / "results").iterdir())
    assert len(models) == 3
    hyper3(folder, "report", "results", "--out", "report")
    page = (folder / "report" / "report.html").read_text()
    assert all(name.rpartition("-")[2] in page for name in models)
    figures = (folder / "report" / "report.csv").read_text().splitlines()
    assert len(figures) > 30
    assert "measured before" in hyper3(folder, "eval", "bundles/smoke", "data/smoke/test.jsonl")


def test_an_evaluation_that_was_killed_goes_on_and_ends_the_same(folder: Path) -> None:
    words = "eval", "bundles/smoke", "data/smoke/test.jsonl"
    for seconds in (0.8, 1.2, 1.6, 2.0):
        process = subprocess.Popen(
            [sys.executable, "-m", "core", *words, "--out", "killed"],
            cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(seconds)
        process.kill()
        process.wait()
    hyper3(folder, *words, "--out", "killed", "--json", "killed.json")
    hyper3(folder, *words, "--out", "whole", "--json", "whole.json")
    assert json.loads((folder / "killed.json").read_text()) == json.loads(
        (folder / "whole.json").read_text()
    )


def test_what_was_indexed_is_found_by_text_and_by_its_own_picture(folder: Path, url: str) -> None:
    assert "20" in hyper3(folder, "index", "data/smoke/test.jsonl", "--url", url)
    found = hyper3(folder, "search", "two dogs", "--url", url, "--k", "3")
    assert found.count(".png") >= 3
    picture = folder / "data" / "smoke" / "test" / "00007.png"
    own = hyper3(folder, "search", "--image", str(picture), "--url", url, "--k", "1")
    assert "00007" in own


def test_points_lie_on_the_hyperboloid_of_the_trained_curvature(folder: Path, url: str) -> None:
    answer = httpx.post(f"{url}/embed", json={"texts": ["a dog", "an animal"]}, timeout=30).json()
    manifest = json.loads((folder / "bundles" / "smoke" / "manifest.json").read_text())
    geometry = answer["geometry"]
    assert geometry["curvature"] == pytest.approx(manifest["curvature"])
    assert len(answer["results"]) == 2
    for vector in (item["vector"] for item in answer["results"]):
        square = vector[0] ** 2 - sum(coordinate**2 for coordinate in vector[1:])
        assert square == pytest.approx(1 / geometry["curvature"], rel=1e-4)


def test_what_is_done_is_not_done_again(folder: Path) -> None:
    assert "nothing to do" in hyper3(folder, "train", "demo-smoke", "data.workers=0")
    written = (folder / "bundles/smoke/manifest.json").stat().st_mtime_ns
    hyper3(folder, "export", "runs/demo-smoke", "--out", "bundles/smoke")
    assert (folder / "bundles/smoke/manifest.json").stat().st_mtime_ns == written
