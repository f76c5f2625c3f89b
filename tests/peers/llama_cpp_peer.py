"""GGUF files that halfbyte writes, in llama.cpp (through llama-cpp-python): token ids, and the perplexity of the same windows.

  llama_cpp_peer.py HALFBYTE MODEL_DIR TEXT WORK [--windows 2] [--tokens 256] [--threads 2] [--only NVFP4,MXFP4]

MODEL_DIR is a plain model in BF16. NVFP4 and MXFP4 are quantized by halfbyte and converted; Q8_0 and Q4_0 are written by halfbyte and
read back by its import. llama.cpp multiplies such layers after rounding activations to 8 bits, so it is asked twice: with the file, and
with a BF16 file of the weights that the file decodes to, which is weights only like halfbyte. Prints a table in Markdown; ends with 1
where ids differ or a perplexity is more than 0.5 % (weights only) or 1 % (its own kernels) away, with 77 where llama-cpp-python is missing.
"""

import argparse
import json
import pathlib
import subprocess
import sys

try:
    import llama_cpp
    import numpy as np
except ImportError as error:
    print(f"llama_cpp_peer: skipped, {error}")
    sys.exit(77)

LIMIT, LIMIT_8_BIT = 5e-3, 1e-2  # relative, of perplexity


def tool(*args, text=None):
    result = subprocess.run([str(a) for a in args], input=text, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(str(a) for a in args)}\nended with {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def perplexity(model, windows):
    losses = []
    for ids in windows:
        model.reset()
        model.eval(ids)
        logits = np.array(model.scores[:len(ids)], dtype=np.float64)[:-1]
        peak = logits.max(-1, keepdims=True)
        norm = np.log(np.exp(logits - peak).sum(-1)) + peak[:, 0]
        losses.append((norm - logits[np.arange(len(ids) - 1), ids[1:]]).mean())
    return float(np.exp(np.mean(losses)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("halfbyte", "model", "text", "work"):
        parser.add_argument(name)
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help="types to try, with commas between (all)")
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    text = " ".join(pathlib.Path(args.text).read_text(encoding="utf-8").split())[:40000]
    (work / "text.txt").write_text(text, encoding="utf-8")
    # Texts in which spaces, digits, other scripts and special tokens must come out alike.
    samples = [text, "x  y\n\n\tz 1234567 don't I'LL", "Größe, naïve, 東京 и Москва \U0001F469\u200d\U0001F4BB", "<|im_start|>user\nhi<|im_end|>"]
    lines = "".join(json.dumps(s) + "\n" for s in samples)
    ours = [json.loads(line) for line in tool(args.halfbyte, "tokenize", args.model, "--jsonl", text=lines).splitlines()]
    windows = [ours[0][i * args.tokens:(i + 1) * args.tokens] for i in range(args.windows)]
    rows, failed = [], False
    for kind, quantize, convert in (("BF16", None, []), ("NVFP4", ["--format", "nvfp4"], []), ("MXFP4", ["--format", "mxfp4"], []),
                                    ("Q8_0", None, ["--linears", "q8_0"]), ("Q4_0", None, ["--linears", "q4_0"])):
        if args.only and kind not in args.only.split(","):
            continue
        source, gguf = pathlib.Path(args.model), work / f"{kind}.gguf"
        if quantize:
            source = work / f"gguf-{kind}"
            tool(args.halfbyte, "quantize", args.model, "-o", source, "--overwrite", *quantize)
        tool(args.halfbyte, "convert", source, "--to", "gguf", "-o", gguf, "--overwrite", *convert)
        decoded, decoded_gguf = work / f"gguf-{kind}-decoded", work / f"{kind}-decoded.gguf"
        tool(args.halfbyte, "import", gguf, "-o", decoded, "--overwrite")
        tool(args.halfbyte, "convert", decoded, "--to", "gguf", "-o", decoded_gguf, "--overwrite")
        tool(args.halfbyte, "eval", decoded if convert else source, "--perplexity", work / "text.txt", "--windows", args.windows,
             "--seq-len", args.tokens, "--json", work / "eval.json")
        our_ppl = json.loads((work / "eval.json").read_text())["perplexity"]
        theirs = []
        for path in (decoded_gguf, gguf):
            model = llama_cpp.Llama(model_path=str(path), n_ctx=args.tokens, n_batch=args.tokens, logits_all=True,
                                    n_threads=args.threads, n_threads_batch=args.threads, verbose=False)
            same_ids = [model.tokenize(s.encode(), add_bos=False, special=True) for s in samples] == ours
            theirs.append(perplexity(model, windows))
            model.close()
            path.unlink()
        differences = [ppl / our_ppl - 1 for ppl in theirs]
        bad = not same_ids or abs(differences[0]) > LIMIT or abs(differences[1]) > LIMIT_8_BIT
        failed |= bad
        rows.append(f"| {kind} | {'equal' if same_ids else 'DIFFER'} ({sum(map(len, ours))}) | {our_ppl:.4f} | "
                    + " | ".join(f"{ppl:.4f} | {100 * difference:+.3f} %" for ppl, difference in zip(theirs, differences)) + " |")
        print(("FAILED " if bad else "") + rows[-1], flush=True)
    print(f"\nllama-cpp-python {llama_cpp.__version__}, {args.windows} windows of {args.tokens} tokens")
    print("\n| type | token ids | perplexity, ours | llama.cpp, weights only | | its own kernels | |\n|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
