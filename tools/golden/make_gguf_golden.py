"""Writes the golden data that gguf-py and the safetensors package define: block types and the file writer's layout.

    python tools/golden/make_gguf_golden.py tests/golden

gguf_blocks.safetensors         TYPE.bytes [rows, row bytes] quantized or random blocks, TYPE.deq [rows, 256] their values
gguf_writer_order.safetensors   one tensor of every dtype, written by the reference implementation
"""

import importlib.metadata
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

out = sys.argv[1]
versions = " ".join(f"{p} {importlib.metadata.version(p)}" for p in ("gguf", "numpy", "torch", "safetensors"))
rng = np.random.default_rng(20240229)
types = gguf.GGMLQuantizationType


def sample():
    """[8, 256]: noise over several decades, zeros, one-signed blocks, an outlier, exact steps."""
    x = rng.standard_normal((8, 256)).astype(np.float32)
    x[1] *= 1e-3
    x[2] = np.abs(x[2]) + 0.5
    x[3, :64] = 0
    x[3, 64] = 1000
    x[4] = np.arange(256) % 16 - 8
    x[5] = -np.abs(x[5]) * 40
    x[6] *= np.float32(2.0) ** rng.integers(-12, 8, 256)
    x[7] = 0
    return x


def random_blocks(kind, halves, rows=8):
    """Random bytes with finite fp16 numbers at the byte offsets in halves."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows * 256 // values, size), dtype=np.uint8)
    for at in halves:
        scale = (rng.standard_normal(len(blocks)) * 10.0 ** rng.integers(-6, 2, len(blocks))).astype(np.float16)
        scale[:2] = [0, 6e-8]  # zero and the smallest subnormal
        blocks[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


tensors = {}


def add(name, kind, data):
    values = np.asarray(gguf.dequantize(data, kind), np.float32)
    tensors[f"{name}.bytes"] = torch.from_numpy(np.ascontiguousarray(data.reshape(8, -1).view(np.uint8)))
    tensors[f"{name}.deq"] = torch.from_numpy(np.ascontiguousarray(values.reshape(8, -1)))


x = sample()
for kind in (types.Q5_0, types.Q5_1, types.Q4_0, types.Q4_1, types.Q8_0, types.BF16, types.F16):
    add(kind.name, kind, gguf.quantize(x, kind))
for kind, halves in ((types.Q5_0, [0]), (types.Q5_1, [0, 2]), (types.Q4_K, [0, 2]), (types.Q5_K, [0, 2]),
                     (types.Q6_K, [208]), (types.NVFP4, [])):
    add(f"{kind.name}.random", kind, random_blocks(kind, halves))
e = random_blocks(types.MXFP4, []).reshape(-1, 17)
e[:64, 0] = np.concatenate([np.arange(0, 32), np.arange(110, 141), [254]])
add("MXFP4.random", types.MXFP4, e)
save_file(tensors, f"{out}/gguf_blocks.safetensors", metadata={"made_with": versions})

order = {}
for name, dtype in [("z.bool", torch.bool), ("u8", torch.uint8), ("i8", torch.int8), ("e5m2", torch.float8_e5m2),
                    ("e4m3", torch.float8_e4m3fn), ("e8m0", torch.float8_e8m0fnu), ("i16", torch.int16),
                    ("u16", torch.uint16), ("f16", torch.float16), ("bf16", torch.bfloat16), ("i32", torch.int32),
                    ("u32", torch.uint32), ("f32", torch.float32), ("f64", torch.float64), ("i64", torch.int64),
                    ("u64", torch.uint64)]:
    size = torch.empty(0, dtype=dtype).element_size()
    raw = rng.integers(0, 2 if dtype == torch.bool else 256, 6 * size, dtype=np.uint8)
    order[name] = torch.from_numpy(raw).view(dtype).reshape(2, 3)
order["a.f32"] = torch.zeros(5)
order['quote " back\\slash \u00e9\U0001f600\t'] = torch.zeros(1)
order["scalar"] = torch.tensor(1.5)
order["empty"] = torch.zeros(0, 4)
save_file(order, f"{out}/gguf_writer_order.safetensors", metadata={"made_with": versions})
