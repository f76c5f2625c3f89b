#!/usr/bin/env python3
"""The texts of docs/accuracy.md from gensim's wheel: what to calibrate on, and a second text to test on.

    python tools/accuracy/make_texts.py gensim-4.4.0-*.whl wiki.test.raw OUT

writes OUT/lee_background.cor (300 news articles), OUT/enwiki.txt (encyclopaedia articles that share no eight consecutive
words, and no title, with the test text; 9000 characters of each) and OUT/heldout.txt (the articles of the same excerpt that
do, whole: none of them is calibrated on). Articles are plain paragraphs; those of under 3000 characters are left out.
"""
import bz2
import html
import re
import sys
import zipfile
from pathlib import Path

DUMP = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
NEWS = "gensim/test/test_data/lee_background.cor"
ARTICLE, SHORTEST, SHARED = 9000, 3000, 8

# What goes away with all it holds, in this order; patterns of nested things are applied until the depth given.
REMOVED = [
    (1, r"<!--.*?-->"),
    (1, r"<ref[^>/]*/>"),
    (1, r"<ref.*?</ref>"),
    (1, r"<(math|gallery|table|timeline|code|pre|source)[^>]*>.*?</\1>"),
    (6, r"\{\{[^{}]*\}\}"),
    (4, r"\{\|(?:(?!\{\||\|\}).)*\|\}"),
    (3, r"(?i:\[\[(?:File|Image|Category|[a-z\-]{2,12}):[^\[\]]*\]\])"),
]
# What leaves its text behind.
REPLACED = [
    (r"\[\[(?:[^\[\]|]*\|)?([^\[\]]*)\]\]", r"\1"),
    (r"\[\[(?:File|Image)[^\n]*", ""),
    (r"\[https?://\S+ ?([^\]]*)\]", r"\1"),
    (r"'{2,}", ""),
    (r"<[^>]+>", ""),
]


def paragraphs(markup):
    """The running text of wiki markup, a paragraph a line."""
    text = html.unescape(markup)
    for depth, pattern in REMOVED:
        for _ in range(depth):
            text = re.sub(pattern, "", text, flags=re.S)
    for pattern, kept in REPLACED:
        text = re.sub(pattern, kept, text)
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if len(line) > 120 and line[0] not in "*#|!{:;=")


def words(text):
    """Words without the spacing of WikiText around @-@, @,@ and @.@."""
    plain = text.lower().replace(" @-@ ", " ").replace(" @,@ ", "").replace(" @.@ ", " ")
    return re.findall(r"[a-z0-9]+", plain)


def runs(text):
    """All runs of SHARED consecutive words."""
    found = words(text)
    return {tuple(found[i : i + SHARED]) for i in range(len(found) - SHARED + 1)}


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    wheel, test, out = sys.argv[1:]
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    test = Path(test).read_text(encoding="utf8")
    tested = runs(test)
    titles = {title.strip().split(" (")[0].lower() for title in re.findall(r"^ = ([^=\n]*) = $", test, re.M)}
    with zipfile.ZipFile(wheel) as files:
        (out / "lee_background.cor").write_bytes(files.read(NEWS))
        dump = bz2.decompress(files.read(DUMP)).decode("utf8")
    calibration, heldout = [], []
    for page in re.findall(r"<page>.*?</page>", dump, re.S):
        markup = re.search(r"<text[^>]*>(.*?)</text>", page, re.S)
        text = paragraphs(markup.group(1)) if markup and "<redirect" not in page else ""
        if len(text) < SHORTEST:
            continue
        title = re.search(r"<title>(.*?)</title>", page).group(1).lower()
        known = title in titles or not tested.isdisjoint(runs(text))
        if known:
            heldout.append(text)
        else:
            calibration.append(text[:ARTICLE])
    for name, articles in (("enwiki.txt", calibration), ("heldout.txt", heldout)):
        (out / name).write_text("".join(article + "\n\n" for article in articles), encoding="utf8")
        print(f"{name}: {len(articles)} articles, {sum(map(len, articles))} characters")


if __name__ == "__main__":
    main()
