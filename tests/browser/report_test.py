"""Looks at an HTML report in headless Chromium: no errors, nothing loaded, charts drawn, fits a phone, light and dark.

Usage: report_test.py REPORT.html [FOLDER for screenshots]. Exit code 77: no Chromium here.
"""

import pathlib
import sys

import browser

# The pixels of a canvas, read from a copy so that the chart's own stays as it is.
PIXELS = """const pixelsOf = (canvas) => {
  const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  return context.getImageData(0, 0, copy.width, copy.height).data;
};
await new Promise(requestAnimationFrame);
await new Promise(requestAnimationFrame);
"""

# Of each canvas: its size and how many pixels are drawn, in how many colours.
CANVASES = "(async () => {" + PIXELS + """
  return [...document.querySelectorAll("canvas")].map((canvas) => {
    const pixels = pixelsOf(canvas);
    const colours = new Set();
    let drawn = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i + 3] > 200) { drawn++; colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]); }
    }
    return { name: canvas.ariaLabel, width: canvas.clientWidth, height: canvas.clientHeight, drawn, colours: colours.size };
  });
})()"""

# Whether the first series' colour is on the canvas: lines and bars, not only axes and names.
SERIES = "(async () => {" + PIXELS + """return [...document.querySelectorAll("canvas")].map((canvas) => {
  const hex = getComputedStyle(document.documentElement).getPropertyValue("--series-0").trim();
  const want = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const pixels = pixelsOf(canvas);
  let count = 0;
  for (let i = 0; i < pixels.length; i += 4)
    if (want.every((v, k) => Math.abs(pixels[i + k] - v) < 3) && pixels[i + 3] > 250) count++;
  return count;
}); })()"""

# WCAG contrast of text and of chart lines against the card they lie on.
CONTRAST = """(() => {
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    const hex = style.getPropertyValue(name).trim();
    const full = hex.length === 4 ? "#" + [...hex.slice(1)].map((c) => c + c).join("") : hex;
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(full.slice(i, i + 2), 16) / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const out = {};
  for (const name of ["--ink", "--soft", "--link"]) out[name] = Math.min(ratio(name, "--card"), ratio(name, "--page"), ratio(name, "--head"));
  for (let i = 0; i < 8; i++) out[`--series-${i}`] = ratio(`--series-${i}`, "--card");
  return out;
})()"""

failures = []


def check(condition, sentence):
    if not condition:
        failures.append(sentence)
        print("FAILED:", sentence)


def look(page, name, width, dark, folder):
    page.view(width, 900, dark=dark, mobile=width < 500)
    page.open(page.report)
    canvases, series = page.value(CANVASES), page.value(SERIES)
    check(canvases, f"{name}: the report has no charts")
    for canvas, coloured in zip(canvases, series):
        what = f"{name}: {canvas['name']}"
        check(canvas["width"] > 200 and canvas["height"] > 100, f"{what} is {canvas['width']} x {canvas['height']}")
        check(canvas["drawn"] > 500 and canvas["colours"] > 10, f"{what} is blank: {canvas}")
        check(coloured > 20, f"{what} shows {coloured} pixels of its first series")
    wide = page.value("document.documentElement.scrollWidth")
    check(wide <= width, f"{name}: the page is {wide} wide in a window of {width}")
    # Also with every table open.
    page.value("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    wide = page.value("document.documentElement.scrollWidth")
    check(wide <= width, f"{name}: the page with open tables is {wide} wide in a window of {width}")
    page.value("document.querySelectorAll('details').forEach((details) => (details.open = false))")
    background = page.value("getComputedStyle(document.body).backgroundColor")
    level = sum(int(part) for part in background[4:-1].split(",")) / 3
    check(level < 60 if dark else level > 200, f"{name}: the background is {background}")
    for colour, ratio in page.value(CONTRAST).items():
        least = 3 if colour.startswith("--series") else 4.5
        check(ratio >= least, f"{name}: {colour} has a contrast of {ratio:.2f}, at least {least} is readable")
    if folder:
        page.screenshot(f"{folder}/{name}.png")


def main():
    chromium = browser.find_chromium()
    if not chromium:
        print("SKIPPED: no chromium here; it shows whether the HTML report looks as it should")
        return 77
    report = pathlib.Path(sys.argv[1]).resolve()
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    page = browser.Page(chromium)
    try:
        page.report = report.as_uri()
        for width in (1280, 360):
            for dark in (False, True):
                look(page, f"{'phone' if width == 360 else 'desk'}-{'dark' if dark else 'light'}", width, dark, folder)
        # The colours follow the system while the page is open.
        page.view(1280, 900, dark=False)
        before = page.value(SERIES)
        check(all(count > 20 for count in before), f"charts after the change to light show {before}")
        # Paper is white, whatever the screen is; nothing is cut off in boxes that scroll.
        page.view(800, 1100, dark=True, media="print")
        printed = page.value(SERIES)
        check(all(count > 20 for count in printed), f"printed charts show {printed}")
        check(page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is not white")
        check(page.value("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible", "tables are cut on paper")
        wide = page.value("document.documentElement.scrollWidth")
        check(wide <= 800, f"paper of 800 holds a page of {wide}")
        if folder:
            page.screenshot(f"{folder}/print.png")
        page.view(1280, 900)
        # Everything can be reached by keyboard: links, folded tables, boxes that scroll.
        reachable = page.value("[...document.querySelectorAll('a, summary, .scroll')].every((e) => e.tabIndex >= 0)")
        check(reachable, "a link, table or box cannot be reached by keyboard")
        alerted = page.value("typeof window.alerted")
        check(alerted == "undefined", "a string of the data ran as a script")
    finally:
        page.close()
    outside = [url for url in page.requests if url != page.report and not url.startswith(("data:", "about:"))]
    check(not outside, f"the page asked for {outside}")
    check(not page.problems, f"the browser says {page.problems}")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
