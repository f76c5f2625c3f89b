#!/usr/bin/env python3
"""A llama-shaped model of random BF16 weights, to measure time and memory at a size without its download.

    python tools/random_model.py smollm2 OUT --layers 2 [--hidden 4096 --intermediate 14336 --heads 32 --kv-heads 8]

takes tokenizer and vocabulary from the first directory, so that text can run through it. The defaults are the shapes of
Llama-3-8B; with --layers 32 --vocab 128256 it is one, rows of the vocabulary that the tokenizer lacks and a head of its own
included. --pool takes all weights from one run of so many million random numbers, which is much faster and as good where only
time and memory are looked at. Needs numpy alone.
"""
import argparse
import json
import shutil
import struct
from pathlib import Path

import numpy as np


def bf16(values):
    """float32 -> BF16 codes, nearest even (no NaN among random weights)."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--intermediate", type=int, default=14336)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vocab", type=int, help="rows of the embedding and of an lm_head.weight of its own")
    parser.add_argument("--pool", type=int, help="millions of random numbers that all weights are taken from")
    args = parser.parse_args()

    vocab = args.vocab or json.loads((args.tokenizer / "config.json").read_text())["vocab_size"]
    head_dim = args.hidden // args.heads
    linears = {
        "self_attn.q_proj": (args.hidden, args.hidden),
        "self_attn.k_proj": (args.kv_heads * head_dim, args.hidden),
        "self_attn.v_proj": (args.kv_heads * head_dim, args.hidden),
        "self_attn.o_proj": (args.hidden, args.hidden),
        "mlp.gate_proj": (args.intermediate, args.hidden),
        "mlp.up_proj": (args.intermediate, args.hidden),
        "mlp.down_proj": (args.hidden, args.intermediate),
    }
    shapes = {"model.embed_tokens.weight": (vocab, args.hidden), "model.norm.weight": (args.hidden,)}
    for i in range(args.layers):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in linears.items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{i}.{norm}.weight"] = (args.hidden,)
    if args.vocab:
        shapes["lm_head.weight"] = (vocab, args.hidden)

    args.out.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (args.tokenizer / file).exists():
            shutil.copy(args.tokenizer / file, args.out / file)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "hidden_size": args.hidden, "intermediate_size": args.intermediate, "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads, "num_key_value_heads": args.kv_heads, "vocab_size": vocab,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
        "tie_word_embeddings": not args.vocab, "bos_token_id": 1, "eos_token_id": 2,
    }
    (args.out / "config.json").write_text(json.dumps(config, indent=1))

    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random, pools = np.random.default_rng(args.seed), {}
    with open(args.out / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            scale = np.float32(shape[-1] ** -0.5)
            if len(shape) == 1:
                file.write(bf16(np.ones(shape, np.float32)).tobytes())
            elif not args.pool:
                file.write(bf16(random.standard_normal(shape, np.float32) * scale).tobytes())
            else:
                if scale not in pools:
                    pools[scale] = bf16(random.standard_normal(args.pool * 10**6, np.float32) * scale)
                left = int(np.prod(shape))
                while left:  # from another place each time
                    piece = pools[scale][random.integers(args.pool * 10**6) :][:left]
                    file.write(piece.data)
                    left -= len(piece)


if __name__ == "__main__":
    main()
