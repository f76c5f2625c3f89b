"""Products of 16-bit activations with 4-bit weights against cuBLAS with the decoded BF16 weights: errors first, then time.

  python tools/gpu/bench_matmul.py libhalfbyte_cuda_c.so [--shapes 14336x4096,...] [--m 1,8,16] [--formats nvfp4,nf4-double]
                                   [--repeats 60] [--clean] [--bitsandbytes] [--json FILE]

Shapes are N x K. Ours and cuBLAS alternate in one process, each after 256 MB went through the L2, with the queue kept full;
medians. `floor` is the time of a kernel that reads the packed weights and does nothing. --bitsandbytes
times its NF4 and FP4 products beside ours where it is installed. `error` is |ours - product| / |product| in the norm over the float32 product of the decoded weights.
"""

import argparse
import json

import torch

from clock import Clock
from halfbyte_cuda import Library, Weights


def bitsandbytes_product(kind, n, k, activations):
    """A call of bitsandbytes for weights of that kind and shape, or nothing for a kind that it does not have."""
    name = kind.removesuffix("-double")
    if name not in ("nf4", "fp4"):
        return None
    import bitsandbytes
    from bitsandbytes.functional import quantize_4bit
    weight = torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * 0.02
    packed, state = quantize_4bit(weight, blocksize=64, quant_type=name, compress_statistics=kind.endswith("-double"))
    return lambda: bitsandbytes.matmul_4bit(activations, packed.t(), state)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--shapes", default="4096x4096,14336x4096,4096x14336,28672x8192")
    parser.add_argument("--m", default="1,8,16")
    parser.add_argument("--formats", default="nvfp4,nf4-double")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--clean", action="store_true", help="leave the L2 full of clean lines, not of dirty ones")
    parser.add_argument("--bitsandbytes", action="store_true", help="time bitsandbytes too")
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.manual_seed(7)
    torch.backends.cuda.matmul.allow_tf32 = False
    lib, clock = Library(args.library), Clock(args.clean)
    result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "repeats": args.repeats,
              "l2_before": "clean" if args.clean else "dirty", "rows": []}
    sink = torch.zeros(4, dtype=torch.int32, device="cuda")
    empty = clock.medians({"empty": lambda: None}, args.repeats)["empty"]
    print(f"{result['device']}, torch {result['torch']}, medians of {args.repeats}, an empty region reads {empty:.2f} us")
    print(f"{'N x K':>12} {'M':>5} {'format':<11} {'us':>8} {'cuBLAS':>8} {'x cuBLAS':>8} {'floor':>7} {'GB/s':>6} {'TFLOP/s':>8} {'error':>9}")
    failures = 0
    for n, k in (map(int, shape.split("x")) for shape in args.shapes.split(",")):
        for kind in args.formats.split(","):
            weights = Weights(kind, n, k, torch.bfloat16)
            dense = weights.decoded(lib, torch.bfloat16)
            exact = weights.decoded(lib, torch.float32)
            for m in map(int, args.m.split(",")):
                activations = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
                ours = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
                theirs = torch.empty_like(ours)
                call = lib.pack(weights, m)
                lib.matmul(call, activations, ours)
                product = activations.float() @ exact.T
                error = float((ours.float() - product).norm() / product.norm())
                good = error < 6e-3
                failures += not good
                calls = {"ours": lambda: lib.matmul(call, activations, ours),
                         "cublas": lambda: torch.mm(activations, dense.T, out=theirs),
                         "floor": lambda: lib.read(call.keep[0], sink)}
                peer = bitsandbytes_product(kind, n, k, activations) if args.bitsandbytes else None
                if peer:
                    calls["bitsandbytes"] = peer
                times = clock.medians(calls, args.repeats)
                us, cublas = times["ours"], times["cublas"]
                beside = f"  bitsandbytes {times['bitsandbytes']:.2f}" if peer else ""
                rate, flops = weights.bytes() / us * 1e-3, 2e-6 * m * n * k / us
                print(f"{f'{n}x{k}':>12} {m:>5} {kind:<11} {us:>8.2f} {cublas:>8.2f} {cublas / us:>8.2f} {times['floor']:>7.2f} {rate:>6.0f} "
                      f"{flops:>8.1f} {error:>9.2e}{beside}{'' if good else '  FAILED'}", flush=True)
                result["rows"].append({"n": n, "k": k, "m": m, "format": kind, "us": us, "cublas_us": cublas, "floor_us": times["floor"],
                                       "times_cublas": cublas / us, "weight_gbps": rate, "tflops": flops, "error": error}
                                      | ({"bitsandbytes_us": times["bitsandbytes"]} if peer else {}))
            del weights, dense, exact
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
