"""The report in chromium, from the file system, with the network off.

A script at the end of the page uses it as a reader does and writes what it finds into the page,
which chromium prints.
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.tables.report.render import write

pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed (Debian: chromium)"
)
FIRST = """<script>
const errors = [];
addEventListener("error", event => errors.push(event.message));
for (const kind of ["error", "warn"]) console[kind] = text => errors.push(text);
requestAnimationFrame = draw => setTimeout(draw, 0); // chromium prints the page after all timers
</script>"""
LAST = """<script>(async () => {
const found = {}, one = text => document.querySelector(text);
const all = text => [...document.querySelectorAll(text)];
const column = () => [...one("#imdb_wiki table").tBodies[0].rows].map(row => row.cells[2])
  .map(cell => cell.dataset.value).filter(value => value).map(Number);
const head = all("#imdb_wiki th[data-column]")[2];
found.sorted = [column()];
for (let i = 0; i < 3; i++) { head.click(); found.sorted.push(column()); }
const cited = () => all("#imdb_wiki tr.cited").filter(row => row.offsetParent).length;
found.cited = [cited()];
one("#marks input[name=cited]").click();
found.cited.push(cited());
const frame = () => new Promise(done => setTimeout(done, 10));
async function set(name, value) {
  const input = one("#demo-controls").elements[name];
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  await frame();
}
const plot = () => [one("#demo-line").getAttribute("y1"), one("#demo-marginal").getAttribute("d"),
  one("#demo-plot .train").getAttribute("points")];
await frame();
found.demo = { start: plot() };
const changes = { skew: "1", noise: "0.5", method: "BMC", seed: "3", family: "exponential" };
for (const name in changes) { await set(name, changes[name]); found.demo[name] = plot(); }
const plain = { family: "normal", noise: "1", count: "0", skew: "3", method: "Vanilla" };
for (const name in plain) await set(name, plain[name]);
found.closed = [one("#demo-lines .chosen").lastChild.textContent, one("#demo-closed").textContent];
const colour = () => getComputedStyle(document.body).backgroundColor;
found.colours = [colour()];
found.width = document.documentElement.scrollWidth - innerWidth;
one("#theme").click();
found.colours.push(colour());
found.loaded = document.images.length > 0
  && [...document.images].every(image => image.loading === "lazy" || image.naturalWidth > 0);
found.requests = performance.getEntriesByType("resource").length;
found.title = document.title;
found.errors = errors;
const text = JSON.stringify(found);
if (parent !== window) parent.postMessage(text, "*");
const shown = { id: "found", textContent: text };
document.body.append(Object.assign(document.createElement("pre"), shown));
})();</script>"""
PHONE = """<pre id="found"></pre><iframe src="report.html" width="390" height="844"></iframe>
<script>
onmessage = event => { document.getElementById("found").textContent = event.data; };
</script>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = write(tmp_path_factory.mktemp("report"), own=False)[0]
    text = page.read_text().replace("<head>", f"<head>{FIRST}").replace("</body>", f"{LAST}</body>")
    page.write_text(text)
    (page.parent / "phone.html").write_text(PHONE)
    return page.parent


def opened(page: Path, *options: str) -> dict[str, Any]:
    """Return what the script of a page finds."""
    words = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", *options]
    words += ["--disable-dev-shm-usage", f"--user-data-dir={page.parent / 'profile'}"]
    words += ["--proxy-server=127.0.0.1:9", "--virtual-time-budget=20000", page.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    (shown,) = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    return json.loads(html.unescape(shown))


def test_the_page_works_offline(folder: Path):
    found = opened(folder / "report.html", "--window-size=1280,900")
    assert found["title"] == "Balanced MSE, reproduced"
    assert (found["errors"], found["requests"], found["loaded"]) == ([], 0, True)
    before, *clicks = found["sorted"]
    assert clicks == [sorted(before), sorted(before, reverse=True), before]
    assert before != sorted(before)
    shown, hidden = found["cited"]  # whose numbers are shown can be chosen
    assert shown > hidden == 0
    now = found["demo"].pop("start")
    for name, after in found["demo"].items():
        assert after[0] != now[0], f"{name} does not move the line"
        assert after[1] != now[1], f"{name} does not move the marginal of the predictions"
        assert (after[2] != now[2]) == (name in ("skew", "family")), f"{name}: labels"
        now = after
    assert found["closed"] == ["5.333", "5.333"]
    light, dark = found["colours"]
    assert light != dark


def test_a_phone_scrolls_tables_not_the_page(folder: Path):
    found = opened(folder / "phone.html", "--blink-settings=preferredColorScheme=0")
    assert found["width"] <= 0
    assert found["colours"][0] == "rgb(20, 22, 26)"
