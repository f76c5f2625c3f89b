"""Writes the seeds of fuzz/ecosystem_fuzz: one small layer of every golden checkpoint in tests/golden/peers, and such a layer as ARC
(halfbyte-arc) has it.

  make_ecosystem_seeds.py tests/golden/peers fuzz/seeds/ecosystem

A seed is the text of config.json, a zero byte and a safetensors file. Needs the standard library only.
"""

import json
import pathlib
import struct
import sys

LAYER = "model.layers.0.self_attn.k_proj."


def layer_of(path):
    """Type, shape and bytes by name of the tensors of one layer, which becomes "k"; the others are left out."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: item[1].get("data_offsets", [0])[0]):
        if name.startswith(LAYER):
            begin, end = entry["data_offsets"]
            tensors["k." + name[len(LAYER):]] = (entry["dtype"], entry["shape"], body[begin:end])
    return tensors


def safetensors(tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def write(target, config, entry, tensors):
    seed = json.dumps({"dtype": config["dtype"], "quantization_config": entry}).encode() + b"\0" + safetensors(tensors)
    target.write_bytes(seed)
    print(target.name, len(seed))


def as_arc(entry, tensors):
    """The layer as if its last 16 columns were residual ones of its first 16: entry and tensors."""
    rows, columns = tensors["k.weight_packed"][1][0], 2 * tensors["k.weight_packed"][1][1]
    arc = {name: tensor for name, tensor in tensors.items() if "_global_scale" in name}
    arc["k.residual_input_global_scale"] = arc["k.input_global_scale"]
    for part, per_byte in (("packed", 2), ("scale", 16)):
        dtype, (_, width), data = tensors["k.weight_" + part]
        cut = width - 16 // per_byte
        for name, begin, end in (("k.weight_" + part, 0, cut), ("k.residual_" + part, cut, width)):
            arc[name] = (dtype, [rows, end - begin], b"".join(data[row * width + begin:row * width + end] for row in range(rows)))
    arc["k.input_order"] = ("I32", [columns - 16], struct.pack(f"<{columns - 16}i", *range(columns - 16)))
    arc["k.residual_channels"] = ("I32", [16], struct.pack("<16i", *range(16)))
    spec = {"format": "nvfp4", "block_size": 16, "global_scale": "compressed-tensors"}
    scale = struct.unpack("<f", arc["k.input_global_scale"][2])[0]
    halfbyte = {"quant_method": "halfbyte", "version": 3, "activations": spec | {"scope": "static"},
                "inputs": {"in": {"method": "arc", "channels": columns - 16, "width": columns, "residual": 16, "residual_scale": "own",
                                  "gathered": True, "global_scale": scale, "residual_global_scale": scale}},
                "tensors": {"k.weight": spec | {"shape": [rows, columns], "dtype": "BF16", "input": "in"}}}
    return entry | {"quant_method": "halfbyte-arc", "arc_version": 1, "halfbyte": halfbyte}, arc


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    for folder in sorted(path.parent for path in source.glob("*/config.json")):
        config = json.loads((folder / "config.json").read_text())
        entry, tensors = config["quantization_config"], layer_of(folder / "model.safetensors")
        write(target / folder.name, config, entry, tensors)
        if folder.name == "compressed_tensors_nvfp4":
            write(target / "halfbyte_arc", config, *as_arc(entry, tensors))


if __name__ == "__main__":
    main()
