"""Compares halfbyte's NF4 / FP4 dequantization with bitsandbytes on one device: bits first, then time.

  python tools/gpu/bench_bitsandbytes.py libhalfbyte_cuda_c.so [--json FILE] [--ragged 500] [--sizes 4096,8192,16384]

Bits: square matrices and random ragged shapes, block sizes and types, with and without double quantization, quantized by
bitsandbytes itself. Time: its whole call dequantize_4bit and ours alternate in one process, each after 256 MB went
through the L2, with the queue kept full so that neither waits for Python; medians. The JSON is what the ladder's option
--bitsandbytes takes.
"""

import argparse
import json
import random

import torch
import bitsandbytes as bnb
from bitsandbytes import functional as F

from clock import Clock
from halfbyte_cuda import Library


def differing(a, b):
    """Elements whose bits differ; two NaN count as equal."""
    kind = torch.int32 if a.dtype == torch.float32 else torch.int16
    different = a.view(kind) != b.view(kind)
    return int((different & ~(torch.isnan(a) & torch.isnan(b))).sum())


def only_zero_signs(a, b):
    return differing(a + 0.0, b + 0.0) == 0


def quantize(weight, kind, block, nested):
    return F.quantize_4bit(weight, blocksize=block, quant_type=kind, compress_statistics=nested)


def check(lib, weight, kind, block, nested, dtype):
    packed, state = quantize(weight.to(dtype), kind, block, nested)
    theirs = F.dequantize_4bit(packed, state).reshape(-1)
    ours = torch.full_like(theirs, float("nan"))
    lib.dequantize(lib.prepare(packed, state, ours))
    return differing(ours, theirs), only_zero_signs(ours, theirs)


def ragged_cases(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        rows = rng.choice([1, 2, 3, 5, 7, 13, 31, 64, 100, 127, 257])
        columns = rng.randint(1, 3000)
        yield (
            rows,
            columns,
            rng.choice(["nf4", "nf4", "fp4"]),
            rng.choice([32, 64, 128, 256, 512, 1024, 2048, 4096]),
            rng.random() < 0.6,
            rng.choice([torch.bfloat16, torch.float16, torch.float32]),
        )


def check_ragged(lib, count, seed):
    failed = zero_signs = skipped = 0
    refusals = set()
    for rows, columns, kind, block, nested, dtype in ragged_cases(count, seed):
        weight = torch.randn(rows, columns, device="cuda") * 0.05
        try:
            wrong, zeros = check(lib, weight, kind, block, nested, dtype)
        except Exception as error:  # a block size or shape that bitsandbytes itself refuses
            skipped += 1
            refusals.add(f"{type(error).__name__}: {str(error)[:100]} [block {block}]")
            continue
        if wrong and zeros:
            zero_signs += 1
        elif wrong:
            failed += 1
            print(f"DIFFERS {rows}x{columns} {kind} block {block} nested {nested} {dtype}: {wrong} elements")
    for refusal in sorted(refusals):
        print("refused by a side:", refusal)
    return {"cases": count, "failed": failed, "only_sign_of_zero": zero_signs, "refused": skipped}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--json")
    parser.add_argument("--sizes", default="4096,8192,16384")
    parser.add_argument("--ragged", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    lib, clock = Library(args.library), Clock()
    device = torch.cuda.get_device_name()
    result = {"device": device, "bitsandbytes": bnb.__version__, "torch": torch.__version__, "repeats": args.repeats,
              "identical": {}, "whole_call_us": {}, "main_kernel_us": {}, "halfbyte_us": {}, "times": {}}
    failures = 0
    rows = []
    for size in (int(s) for s in args.sizes.split(",")):
        weight = torch.randn(size, size, device="cuda", dtype=torch.bfloat16) * 0.03
        packed, state = quantize(weight, "nf4", 64, True)
        theirs = F.dequantize_4bit(packed, state)
        ours = torch.full_like(theirs, float("nan"))
        call = lib.prepare(packed, state, ours)
        lib.dequantize(call)
        wrong = differing(ours, theirs)
        failures += wrong > 0
        single = quantize(weight, "nf4", 64, False)
        out = torch.empty_like(theirs)
        times = clock.medians(
            {
                "bnb": lambda: F.dequantize_4bit(packed, state),
                "ours": lambda: lib.dequantize(call),
                "bnb_main": lambda: F.dequantize_4bit(*single, out=out),
                "empty": lambda: None,
            },
            args.repeats,
        )
        key = str(size)
        result["identical"][key] = wrong == 0
        result["whole_call_us"][key] = times["bnb"]
        result["main_kernel_us"][key] = times["bnb_main"]
        result["halfbyte_us"][key] = times["ours"]
        result["times"][key] = times["bnb"] / times["ours"]
        rows.append(f"{size:>6}^2  bnb {times['bnb']:8.2f} us (single level {times['bnb_main']:8.2f})  halfbyte "
                    f"{times['ours']:8.2f} us  {times['bnb'] / times['ours']:.3f}x  differing {wrong}  "
                    f"(empty region {times['empty']:.2f} us)")
        del weight, packed, state, theirs, ours, single, out, call
    result["ragged"] = check_ragged(lib, args.ragged, args.seed)
    failures += result["ragged"]["failed"]
    print(f"{device}, bitsandbytes {bnb.__version__}, torch {torch.__version__}, medians of {args.repeats}")
    print("\n".join(rows))
    print("ragged:", result["ragged"])
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
