"""The report used in a real browser: what it shows, how it answers, how fast it draws.

    python benchmarks/report_in_browser.py [--chromium PATH]

Pages are served on this machine; a headless Chromium opens each, with a script in front that
moves, clicks and types, and sends back what it saw. Every request is counted: a report makes none.
Exit status 1 if a check fails.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from unbubble.action import Kind
from unbubble.costs import Costs
from unbubble.families import generate
from unbubble.report import palette
from unbubble.report.html import html
from unbubble.simulate import Timeline, simulate

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--lang=en-US",
)  # fmt: skip
TIMEOUT_S = 60

PROBE = """
const seen = {errors: [], draws: []};
addEventListener("error", (e) => seen.errors.push(e.message));
addEventListener("unhandledrejection", (e) => seen.errors.push(String(e.reason)));
const nextFrame = requestAnimationFrame;
window.requestAnimationFrame = (draw) => nextFrame((now) => {
  const start = performance.now();
  draw(now);
  seen.draws.push(performance.now() - start);
});
const frame = () => new Promise((done) => nextFrame(() => setTimeout(done)));
const find = (selector) => document.querySelector(selector);

async function probe() {
  for (let i = 0; i < 400 && !find(".viewer canvas")?.style.height; i++) await frame();
  await frame();
  seen.ready_ms = performance.now();
  const canvas = find(".viewer canvas"), context = canvas.getContext("2d");
  const box = () => canvas.getBoundingClientRect();
  context.font = `12px ${getComputedStyle(find(".viewer")).fontFamily}`;
  const gutter = Math.ceil(context.measureText("rank " + RANKS).width) + 18;
  const spot = (row, share) => [gutter + share * (canvas.clientWidth - gutter - 8), 40 + row * 28];
  const send = (type, x, y, more) => canvas.dispatchEvent(new PointerEvent(type, {
    clientX: box().left + x, clientY: box().top + y, pointerId: 1, bubbles: true,
    pointerType: "mouse", isPrimary: true, ...more}));
  const at = async (row, share) => {
    send("pointermove", ...spot(row, share));
    await frame();
    return find(".viewer-tip").hidden ? "" : find(".viewer-tip").innerText;
  };
  const press = async (key) => {
    canvas.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
    await frame();
    return find(".viewer-spoken").textContent;
  };
  const look = () => {
    const all = context.getImageData(0, 0, canvas.width, canvas.height).data, count = {};
    for (let i = 0; i < all.length; i += 4) {
      const hex = "#" + [0, 1, 2].map((c) => all[i + c].toString(16).padStart(2, "0")).join("");
      count[hex] = (count[hex] ?? 0) + 1;
    }
    return count;
  };
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  seen.too_wide = document.documentElement.scrollWidth - innerWidth;
  seen.still = getComputedStyle(find(".still")).display;
  const whole = look();
  seen.colors = whole;
  seen.tips = [];
  for (const [row, share] of SPOTS) seen.tips.push(await at(row, share));
  seen.spoken = [];
  for (const key of KEYS) seen.spoken.push(await press(key));
  await press("Escape");
  seen.closed = find(".viewer-tip").hidden;
  for (let i = 0; i < 6; i++) await press("w");
  const close = look();
  seen.zooms = !same(close, whole);
  send("pointerdown", 400, 60);
  for (const x of [390, 330, 200]) send("pointermove", x, 60);
  send("pointerup", 200, 60);
  await frame();
  seen.drags = !same(look(), close);
  await press("0");
  send("pointermove", 2, 2);
  await frame();
  seen.fits = same(look(), whole);
  canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -400, ctrlKey: true, bubbles: true,
    cancelable: true, clientX: box().left + 300, clientY: box().top + 50}));
  await frame();
  seen.wheels = !same(look(), whole);
  await press("0");
  const touch = (type, pointerId, x) => send(type, x, 60, {pointerId, pointerType: "touch"});
  touch("pointerdown", 5, 200); touch("pointerdown", 6, 230);
  for (let i = 0; i < 10; i++) touch("pointermove", 6, 230 + 10 * i);
  touch("pointerup", 6, 330); touch("pointerup", 5, 200);
  await frame();
  seen.pinches = !same(look(), whole);
  await press("0");
  const scrolled = new WheelEvent("wheel", {deltaY: 100, bubbles: true, cancelable: true});
  canvas.dispatchEvent(scrolled);
  seen.page_scrolls = !scrolled.defaultPrevented;
  find("#language").click();
  await frame();
  seen.chinese = [document.documentElement.lang, find("h2").innerText, await at(...SPOTS[0])];
  find("#language").click();
  const paper = () => getComputedStyle(document.body).backgroundColor;
  const first = paper();
  find("#theme").click();
  seen.theme = paper() !== first;
  find("#theme").click();
  seen.theme_back = paper() === first;
  await frame();
  seen.draws.length = 0;
  for (let i = 0; i < 30; i++) await press(i % 2 ? "w" : "s");
  seen.draw_ms = seen.draws.sort((a, b) => a - b)[seen.draws.length >> 2];
}
probe().catch((error) => seen.errors.push(String(error.stack ?? error)))
  .finally(() => fetch("/seen", {method: "POST", body: JSON.stringify(seen)}));
"""


class Browser:
    """A headless Chromium that opens one page and tells what its probe saw."""

    def __init__(self, chromium: str):
        self.chromium = chromium
        self.page = b""
        self.requests: list[str] = []
        self.seen: dict[str, Any] = {}
        self.done = threading.Event()
        browser = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                browser.requests.append(self.path)
                self.send_response(200 if self.path == "/" else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(browser.page if self.path == "/" else b"")

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                browser.seen = json.loads(self.rfile.read(length))
                self.send_response(204)
                self.end_headers()
                browser.done.set()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def open(self, page: str, width: int, **values: Any) -> dict[str, Any]:
        """Open a page at a width; `values` are constants of the probe."""
        constants = "".join(f"const {k} = {json.dumps(v)};\n" for k, v in values.items())
        probe = f"<script>\n{constants}{PROBE}</script>"
        self.page = page.replace("<head>", f"<head>{probe}", 1).encode()
        self.requests, self.seen = [], {}
        self.done.clear()
        with tempfile.TemporaryDirectory() as profile:
            process = subprocess.Popen(
                [self.chromium, *FLAGS, f"--user-data-dir={profile}",
                 "--remote-debugging-port=0", f"--window-size={width},1400",
                 f"http://127.0.0.1:{self.server.server_port}/"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                if not self.done.wait(TIMEOUT_S):
                    return {"errors": [f"no answer within {TIMEOUT_S} s"]}
            finally:
                process.terminate()
                process.wait(10)
        return {**self.seen, "requests": self.requests}


def timeline(ranks: int, microbatches: int, **times: Any) -> Timeline:
    schedule = generate("1f1b", ranks, microbatches)
    return simulate(schedule, Costs.uniform(schedule.placement, **times))


class Checks:
    """Counts checks and prints each."""

    def __init__(self) -> None:
        self.failed = 0

    def __call__(self, what: str, good: bool, found: object = "") -> None:
        self.failed += not good
        print(f"{'ok    ' if good else 'FAILED'}  {what}" + (f": {found}" if found != "" else ""))


def check_use(browser: Browser, check: Checks, width: int) -> None:
    """Everything that a reader can do, on a page with a prediction and a measurement."""
    predicted = timeline(4, 8, backward=2, p2p=1)
    measured = replace(timeline(4, 8, backward=3, p2p=1), measured=True)
    length = measured.makespan
    starts = {str(e.action): e.start for e in predicted.events(0)}
    spots = [[0, (starts["0B0"] + 0.5) / length], [0, (starts["0B0"] - 0.5) / length]]
    keys = ["Escape", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"]
    page = html(predicted, measured, title="<script>document.title = 'taken'</script>")
    seen = browser.open(page, width, SPOTS=spots, KEYS=keys, RANKS=3)
    print(f"\nat {width} pixels")
    check("no error in the page", not seen["errors"], seen["errors"] or "")
    if seen["errors"]:
        return
    check("no request but the page itself", seen["requests"] == ["/"], seen["requests"])
    check("the page is no wider than the window", seen["too_wide"] <= 0, seen["too_wide"])
    check("the drawn timeline is for paper only", seen["still"] == "none")
    for kind in (Kind.F, Kind.B):
        pixels = seen["colors"].get(palette.fill(kind, 0), 0)
        check(f"{palette.WORDS[kind]} is painted", pixels > 500, f"{pixels} pixels")
    told = seen["tips"][0].replace("\n", " | ")
    check(
        "hover names action and cause",
        "0B0" in told and "transfer of 1B0 from rank 1" in told,
        told,
    )
    check("hover over idle time shows nothing", seen["tips"][1] == "", seen["tips"][1])
    walked = [text.split(" ")[0] for text in seen["spoken"][1:]]
    check("arrow keys walk", walked == ["0F0", "0F1", "1F0", "1F0"], walked)
    check("escape closes", seen["closed"])
    for what in (
        "zooms",
        "drags",
        "fits",
        "wheels",
        "pinches",
        "page_scrolls",
        "theme",
        "theme_back",
    ):
        check(what.replace("_", " "), seen[what])
    language, heading, tip = seen["chinese"]
    check(
        "the page speaks Chinese",
        language == "zh" and heading == "时间线" and "反向" in tip,
        heading,
    )


def check_speed(
    browser: Browser, check: Checks, ranks: int, microbatches: int, most_ms: float
) -> None:
    """Drawing a whole step of many actions."""
    made = timeline(ranks, microbatches, backward=2)
    page = html(made)
    actions = len(made.schedule)
    seen = browser.open(page, 1280, SPOTS=[[0, 0.1]], KEYS=["Escape"], RANKS=ranks - 1)
    print(f"\n{actions:,} actions")
    check("no error in the page", not seen["errors"], seen["errors"] or "")
    if seen["errors"]:
        return
    size = len(page.encode())
    check("file size", size < 20 * actions + 500_000, f"{size / 1e6:.2f} MB")
    check("ready", seen["ready_ms"] < 6000, f"{seen['ready_ms']:.0f} ms after the request")
    check("a frame of the whole step", seen["draw_ms"] < most_ms, f"{seen['draw_ms']:.1f} ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chromium", default=shutil.which("chromium"), metavar="PATH")
    chosen = parser.parse_args()
    if chosen.chromium is None:
        parser.error("no chromium on the PATH; name one with --chromium")
    browser, check = Browser(chosen.chromium), Checks()
    for width in (1280, 390):
        check_use(browser, check, width)
    check_speed(browser, check, 16, 320, 16)
    check_speed(browser, check, 64, 1024, 100)
    print(f"\n{check.failed} failed")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
