#!/usr/bin/env python3
"""llm-compressor's GPTQ on the calibration text of docs/accuracy.md, as a row to compare with.

    python tools/accuracy/peer_gptq.py smollm2 OUT --scheme NVFP4A16 --text lee_background.cor enwiki.txt
    halfbyte eval OUT --perplexity wiki.test.raw --reference smollm2

needs llmcompressor (0.14.0.1 was used), torch and transformers, on CPU or GPU; OUT is a compressed-tensors checkpoint.
--method rtn rounds to nearest, without GPTQ.
"""
import argparse
import random
import time
from pathlib import Path

import torch
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--scheme", default="NVFP4A16", help="of compressed-tensors: NVFP4A16, NVFP4, ...")
    parser.add_argument("--method", choices=["gptq", "rtn"], default="gptq")
    parser.add_argument("--damping", type=float, default=0.01)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--text", nargs="+", required=True)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    windows = []
    for path in args.text:
        ids = tokenizer(Path(path).read_text(encoding="utf8"), add_special_tokens=False)["input_ids"]
        windows += [ids[i : i + args.seq_len] for i in range(0, len(ids) - args.seq_len + 1, args.seq_len)]
    random.Random(0).shuffle(windows)
    windows = windows[: args.samples]
    data = Dataset.from_dict({"input_ids": windows, "attention_mask": [[1] * args.seq_len] * len(windows)})

    rules = {"targets": "Linear", "scheme": args.scheme, "ignore": ["lm_head"]}
    recipe = (
        GPTQModifier(dampening_frac=args.damping, **rules) if args.method == "gptq" else QuantizationModifier(**rules)
    )
    start = time.time()
    oneshot(model=model, dataset=data, recipe=recipe, max_seq_length=args.seq_len, num_calibration_samples=len(windows))
    print(f"{args.method} {args.scheme}: {time.time() - start:.0f} s, {len(windows)} samples of {args.seq_len}")
    model.save_pretrained(args.out, save_compressed=True)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
