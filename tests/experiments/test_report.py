import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from experiments.ledger import Books, judge_all
from experiments.ledger.books import ROOT, committed
from experiments.report import grid
from experiments.report.captions import groups
from experiments.report.command import write_report
from experiments.report.html import PARTS, page
from experiments.report.markup import to_html
from experiments.report.svg import inline
from tests.experiments.browser import Browser, executable

ACCURACY = 1e-9
"""Relative difference of the page's numbers from Python's: solvers stop some bits before float64 ends."""
BOUNDS = ("counting", "warren", "cap", "partition", "parameters")
SVG = """<?xml version="1.0"?>
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="504pt" viewBox="0 0 504 180" xmlns="http://www.w3.org/2000/svg">
 <metadata>who</metadata><defs><style type="text/css">*{stroke-linejoin: round}</style></defs>
 <g id="figure_1"><defs><path id="m1" d="M 0 0.123456
L -1.999999 2"/></defs><g clip-path="url(#p1)"><use xlink:href="#m1" x="44.927782" y="132.5"/></g></g>
 <defs><clipPath id="p1"><rect x="1" y="2"/></clipPath></defs>
</svg>
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert write_report(path) == 0
    return path


@pytest.fixture(scope="module")
def text(report):
    return report.read_text("utf-8")


def test_a_figure_becomes_part_of_the_page():
    html = inline(SVG, "f7-", "a <figure>")
    assert html.startswith(
        '<svg class="plot wide" role="img" aria-label="a &lt;figure&gt;" viewBox="0 0 504 180"'
    )
    assert re.findall(r'id="([^"]+)"', html) == ["f7-m1", "f7-p1"]
    assert 'href="#f7-m1" x="44.93" y="132.5"' in html
    assert "url(#f7-p1)" in html
    assert 'd="M 0 0.12 L -2 2"' in html
    assert not re.search(r"style type|metadata|xmlns|xlink|figure_1", html)
    with pytest.raises(ValueError, match="viewBox"):
        inline("<p>no figure</p>", "f", "")


def test_captions_are_of_all_committed_figures(tmp_path):
    found = groups(ROOT)
    paths = [caption.path for group in found for caption in group.captions]
    assert sorted(paths) == sorted((ROOT / "figures").glob("*/*.svg"))
    assert all(caption.text for group in found for caption in group.captions)
    first = found[0]
    assert (first.experiment, first.preset) == ("capacity", "quick")
    assert first.command == "python -m experiments run capacity --preset quick"
    bench = {group.preset: group for group in found if group.experiment == "bench"}
    assert bench["heads"].command == "python -m experiments.bench_heads"
    assert "Drawn by" not in bench["heads"].captions[0].text
    folder = tmp_path / "figures" / "rank"
    folder.mkdir(parents=True)
    (folder / "quick-captions.md").write_text("## a\n\n![a](a.svg)\n\nText.\n")
    with pytest.raises(FileNotFoundError, match=r"a\.svg"):
        groups(tmp_path)


def test_markdown_of_captions():
    assert to_html("`a <b>` *Measured*: $D_K$ and $W_Q W_K^\\top$, m < d") == (
        "<code>a &lt;b&gt;</code> <em>Measured</em>: <i>D<sub>K</sub></i> and "
        "<i>W<sub>Q</sub> W<sub>K</sub><sup>⊤</sup></i>, m &lt; d"
    )
    assert to_html("2 * 3 * 4 and $10^{-3}$") == "2 * 3 * 4 and <i>10<sup>-3</sup></i>"


def test_the_page_holds_everything_and_asks_for_nothing(text):
    assert not re.search(r"https?://|@import|<link[^>]*stylesheet|<script[^>]*src", text)
    assert "<!--" not in text
    names = re.findall(r'\sid="([^"]+)"', text)
    assert len(names) == len(set(names))
    for used in re.findall(r'(?:url\(#|href="#)([^")$]+)', text):
        assert used in names
    rows = judge_all(committed())
    assert len(re.findall(r'<article class="claim"', text)) == len(rows)
    for row in rows:
        assert f'id="claim-{row.entry.name}" data-verdict="{row.verdict}"' in text
    assert {"undecided", "fails", "holds where"} <= {row.verdict for row in rows}
    assert text.count('<ul class="undecided">') == sum(
        bool(row.undecided and (row.where or row.not_where)) for row in rows
    )
    assert text.count("<figure id=") == len(list((ROOT / "figures").glob("*/*.svg")))
    for command in ("run capacity --preset quick", "experiments.bench_decode"):
        assert command in text


def test_the_same_records_give_the_same_page():
    few = [group for group in groups(ROOT) if group.experiment == "rank"]
    rows = judge_all(Books({}))
    assert page(few, rows, ROOT) == page(few, rows, ROOT)


def test_a_folder_without_figures_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected figures"):
        write_report(root=tmp_path)


@pytest.mark.skipif(
    shutil.which("node") is None, reason="needs node (https://nodejs.org) to run the page's formulas"
)
def test_formulas_in_javascript_agree_with_python_on_the_sliders_grid():
    points = grid.points(every=17)  # coprime to the number of sliders' places, so that all of them occur
    assert len(points) > 200
    script = (PARTS / "theory.js").read_text("utf-8") + (
        "const {tables, points} = JSON.parse(require('fs').readFileSync(0));"
        "const theory = makeTheory(tables);"
        "const text = (key, value) => value === Infinity ? null : value;"
        "console.log(JSON.stringify(points.map((p) => theory.bounds(p.items, p.d, p.heads)), text));"
    )
    sent = json.dumps({"tables": grid.width_tables(), "points": points})
    done = subprocess.run(
        ["node", "-e", script], input=sent, capture_output=True, text=True, check=True, timeout=60
    )
    finite = 0
    for point, found in zip(points, json.loads(done.stdout), strict=True):
        for name in (*BOUNDS, "theorem"):
            if point[name] is None:
                assert found[name] is None, (name, point)
            else:
                finite += 1
                assert found[name] == pytest.approx(point[name], rel=ACCURACY), (name, point)
    assert finite > 4 * len(points)


def _set(browser: Browser, **places: int) -> None:
    for name, place in places.items():
        browser.ask(
            f"(() => {{ const s = document.getElementById('{name}'); s.value = {place}; "
            "s.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )


def _check_sliders(browser: Browser, items: int, d: int, heads: int) -> None:
    _set(
        browser, items=grid.NUM_ITEMS.index(items), d=grid.D_MODEL.index(d), heads=grid.NUM_HEADS.index(heads)
    )
    expected = grid.point(items, d, heads)
    for name in BOUNDS:
        shown = browser.ask(f"document.getElementById('{name}').textContent")
        value = float(browser.ask(f"document.getElementById('{name}').dataset.value"))
        if expected[name] is None:
            assert (shown, value) == ("∞", float("inf"))
        else:
            assert value == pytest.approx(expected[name], rel=ACCURACY)
            assert shown == (f"{value:.1f}" if value < 100 else f"{value:,.0f}")


@pytest.mark.skipif(
    executable() is None, reason="needs a Chromium (on Debian and Ubuntu: apt-get install -y chromium)"
)
def test_the_page_in_a_browser(report, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        browser.screen(1280, 900)
        browser.open(report)
        assert float(browser.ask("document.getElementById('agreement').dataset.worst")) < ACCURACY
        for sizes in ((96, 16, 4), (96, 16, 1), (1024, 64, 8), (131072, 1024, 128), (16, 8, 12)):
            _check_sliders(browser, *sizes)
        _set(browser, items=grid.NUM_ITEMS.index(96), d=grid.D_MODEL.index(16), heads=grid.NUM_HEADS.index(8))
        for budget, said in (
            (11, "excluded by a theorem"),
            (19, "enough by the prediction"),
            (32, "plain joint descent by its"),
        ):
            _set(browser, budget=grid.TOTAL_KEY_DIM.index(budget))
            assert said in browser.ask("document.getElementById('verdict').textContent")
        shown = "[...document.querySelectorAll('.claim')].filter((c) => c.offsetParent).map((c) => c.dataset.verdict)"
        everything = browser.ask(shown)
        browser.ask("document.querySelector('[data-filter=\"fails\"]').click()")
        assert browser.ask(shown) == ["fails"] * everything.count("fails") != []
        browser.ask("document.querySelector('[data-filter=\"\"]').click()")
        assert browser.ask(shown) == everything
        browser.ask("location.hash = '#capacity-paper-threshold'")
        opened = "document.getElementById('capacity-paper-threshold').closest('details').open"
        assert browser.ask(f"new Promise((done) => setTimeout(() => done({opened}), 50))") is True
        light = browser.ask("getComputedStyle(document.body).backgroundColor")

        browser.screen(390, 844, mobile=True, dark=True)
        browser.open(report)
        assert browser.ask("document.documentElement.scrollWidth") <= 390
        wide = (
            "[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > 391 && "
            "!e.closest('.plate') && !e.closest('.scroll')).length"
        )
        assert browser.ask(wide) == 0
        assert browser.ask("getComputedStyle(document.body).backgroundColor") != light == "rgb(255, 255, 255)"
        assert browser.ask("getComputedStyle(document.querySelector('.plate')).backgroundColor") == light
        assert float(browser.ask("getComputedStyle(document.body).fontSize.replace('px', '')")) >= 16
        assert browser.complaints == []
        assert browser.requests
        assert all(url.startswith(("file:", "data:")) for url in browser.requests)


def test_the_default_place_is_not_under_version_control():
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    assert "/build/" in ignored
    assert Path("build") in [Path(line.strip("/")) for line in ignored]
