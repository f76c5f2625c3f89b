"""Compares `halfbyte tokenize` with the tokenizers package on random Unicode text, for every tokenizer.json in a folder.

Usage: python tokenizer_peer.py HALFBYTE GOLDEN_FOLDER [--seed N] [--count N] [--every-code-point] [--text FILE]
Needs only the tokenizers package. Ends with 1 where ids or decoded text differ, with 77 where the package is missing.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import unicodedata

SPACES = [chr(c) for c in (9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200E), 0x2028, 0x2029,
                           0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF)]
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'LL", "'d", "'D", "\u2019s", "'\u017f", "'x", "''",
                "'R\u0130", "'v\u212a", "don't", "I'll", "\u00e9's"]
ADDED = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<mask>", " <mask> ", "<right>  ", "  <left>", "solo", " solo ",
         "xsolo", "solo\u0301", "Caf\u00e9", "Cafe\u0301", "<0x0A>", "\u2581", "\u2581\u2581"]
WORDS = "the of and Valkyria Chronicles game in to was battle 3rd 1,000 e.g. C++ naive na\u00efve \u00fcber \u0130stanbul".split()
BY_CATEGORY = {}
for _c in range(0x110000):
    if not 0xD800 <= _c <= 0xDFFF:
        BY_CATEGORY.setdefault(unicodedata.category(chr(_c)), []).append(_c)
del _c
SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x17F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x5FF), (0x600, 0x6FF),
           (0x900, 0x97F), (0x980, 0x9FF), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF),
           (0xAC00, 0xD7A3), (0x1E00, 0x1EFF), (0x1F300, 0x1FAFF), (0x10400, 0x1044F), (0x20000, 0x2A6DF),
           (0x11900, 0x1195F), (0x13430, 0x13460), (0x2EBF0, 0x2EE5D), (0x1E4D0, 0x1E4FF)]


def random_text(rng):
    """Up to 24 pieces of anything that a pre-tokenizer may care about."""
    def letters():
        lo, hi = rng.choice(SCRIPTS)
        return "".join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 6)))

    def of(*categories):
        return lambda: "".join(chr(rng.choice(BY_CATEGORY[rng.choice(categories)])) for _ in range(rng.randint(1, 3)))

    def marked():
        return chr(rng.choice(BY_CATEGORY[rng.choice(["Lo", "Ll", "Lu"])])) + of("Mn", "Mn", "Mc")()

    kinds = [
        letters, letters, marked, of("Nd"), of("Nl", "No"), of("Mn", "Mc", "Me"), of("So", "Sm", "Sk", "Sc"),
        of("Po", "Ps", "Pe", "Pd", "Pi", "Pf", "Pc"), of("Cn", "Co", "Cf"), of("Lu", "Ll", "Lt", "Lm", "Lo"),
        lambda: rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3, 7]), lambda: " ", lambda: "\n" * rng.randint(1, 3),
        lambda: "\r\n", lambda: rng.choice(CONTRACTIONS), lambda: rng.choice(WORDS), lambda: rng.choice(WORDS),
        lambda: " " + rng.choice(WORDS), lambda: str(rng.randint(0, 10 ** rng.randint(1, 9))), lambda: rng.choice(ADDED),
        lambda: "".join(chr(rng.randint(33, 126)) for _ in range(rng.randint(1, 8))),
        lambda: "\U0001F469\u200D\U0001F4BB", lambda: "\U0001F1E9\U0001F1EA", lambda: chr(rng.randint(0, 31)),
    ]
    return "".join(rng.choice(kinds)() for _ in range(rng.randint(0, 24)))


def code_point_texts():
    """Every code point alone, after a space, between letters, digits, apostrophes, marks and punctuation."""
    for start in range(0, 0x110000, 32):
        block = [chr(c) for c in range(start, start + 32) if not 0xD800 <= c <= 0xDFFF]
        for pattern in ("{}", " {}", "a{}b ", "1{}2", "'{}", "'{}e", "!{}! ", "{} \n", "e\u0345{}\u0334"):
            yield "".join(pattern.format(c) for c in block if pattern != "{}" or c not in "{}") if block else ""


def halfbyte(binary, model, lines, *flags):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    result = subprocess.run([binary, "tokenize", model, "--jsonl", *flags], input=text.encode(), capture_output=True)
    if result.returncode != 0:
        sys.exit(f"{model}: halfbyte ended with {result.returncode}: {result.stderr.decode()}")
    return [json.loads(line) for line in result.stdout.decode().split("\n")[:-1]]


def compare(what, inputs, ours, theirs):
    wrong = [i for i in range(len(inputs)) if ours[i] != theirs[i]]
    for i in wrong[:3]:
        print(f"  {what} {json.dumps(inputs[i])}\n    halfbyte   {ours[i]!r}\n    tokenizers {theirs[i]!r}")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("halfbyte")
    parser.add_argument("golden", type=pathlib.Path, help="folder of folders with a tokenizer.json")
    parser.add_argument("--seed", type=int, default=20240601)
    parser.add_argument("--count", type=int, default=10000, help="random strings a tokenizer")
    parser.add_argument("--every-code-point", action="store_true")
    parser.add_argument("--text", help="WikiText in its raw form: its rows joined by blank lines, as one text more")
    options = parser.parse_args()
    try:
        import tokenizers
    except ImportError:
        print("SKIPPED: the tokenizers package is not installed")
        sys.exit(77)

    print(f"tokenizers {tokenizers.__version__}, seed {options.seed}")
    failed = 0
    for folder in sorted(p.parent for p in options.golden.glob("*/tokenizer.json")):
        peer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        rng = random.Random(f"{options.seed} {folder.name}")
        texts = [random_text(rng) for _ in range(options.count)]
        if options.every_code_point:
            texts += code_point_texts()
        if options.text:
            with open(options.text, encoding="utf-8", newline="\n") as file:
                texts.append("\n\n".join(line if line.strip() else "" for line in file))
        ids = [e.ids for e in peer.encode_batch(texts)]
        wrong = compare("text", texts, halfbyte(options.halfbyte, folder, texts), ids)
        plain = [e.ids for e in peer.encode_batch(texts[:2000], add_special_tokens=False)]
        wrong += compare("text without frame", texts[:2000],
                         halfbyte(options.halfbyte, folder, texts[:2000], "--no-special"), plain)
        size = peer.get_vocab_size()
        ids += [[rng.randrange(size) for _ in range(rng.randint(1, 12))] for _ in range(options.count)]
        wrong += compare("ids", ids, halfbyte(options.halfbyte, folder, ids), peer.decode_batch(ids, skip_special_tokens=False))
        wrong += compare("ids without special tokens", ids, halfbyte(options.halfbyte, folder, ids, "--no-special"),
                         peer.decode_batch(ids, skip_special_tokens=True))
        print(f"{folder.name}: {len(texts)} texts, {sum(map(len, ids))} ids, {len(ids)} decoded, {wrong} differ")
        failed += wrong
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
