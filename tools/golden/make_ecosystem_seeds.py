"""Writes the seeds of fuzz/ecosystem_fuzz: one small layer of every golden checkpoint in tests/golden/peers.

  make_ecosystem_seeds.py tests/golden/peers fuzz/seeds/ecosystem

A seed is the text of config.json, a zero byte and a safetensors file. Needs the standard library only.
"""

import json
import pathlib
import struct
import sys

LAYER = "model.layers.0.self_attn.k_proj."


def small(path):
    """A safetensors file with the tensors of one layer alone."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    kept, out = {}, b""
    for name, entry in sorted(header.items(), key=lambda item: item[1].get("data_offsets", [0])[0]):
        if name.startswith(LAYER):
            begin, end = entry["data_offsets"]
            kept["k." + name[len(LAYER):]] = entry | {"data_offsets": [len(out), len(out) + end - begin]}
            out += body[begin:end]
    text = json.dumps(kept, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + out


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    for folder in sorted(path.parent for path in source.glob("*/config.json")):
        config = json.loads((folder / "config.json").read_text())
        kept = {"dtype": config["dtype"], "quantization_config": config["quantization_config"]}
        seed = json.dumps(kept).encode() + b"\0" + small(folder / "model.safetensors")
        (target / folder.name).write_bytes(seed)
        print(folder.name, len(seed))


if __name__ == "__main__":
    main()
