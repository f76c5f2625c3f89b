#!/usr/bin/env bash
# A model of two shards, larger than the address space that the process may have, is quantized and verified inside
# it. The weights are zeros, as holes of sparse files. Usage: limits.sh HALFBYTE.
. "$(dirname "$0")/check.sh"
tool=$1
limit=$((600 * 1024))  # KiB
mkdir "$work/model"
python3 - "$work/model" <<'PY'
import json, struct, sys
folder = sys.argv[1]
hidden, middle, layers, vocab = 2048, 8192, 8, 512
linears = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden, hidden), "self_attn.v_proj": (hidden, hidden),
           "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (middle, hidden), "mlp.up_proj": (middle, hidden),
           "mlp.down_proj": (hidden, middle)}
tensors = [[("model.embed_tokens.weight", (vocab, hidden)), ("model.norm.weight", (hidden,))], []]
for layer in range(layers):
    part = tensors[2 * layer // layers]
    part += [(f"model.layers.{layer}.{name}.weight", shape) for name, shape in linears.items()]
    part += [(f"model.layers.{layer}.{name}.weight", (hidden,)) for name in ("input_layernorm", "post_attention_layernorm")]
index = {}
for number, part in enumerate(tensors, 1):
    name, header, offset = f"model-{number:05d}-of-00002.safetensors", {}, 0
    for tensor, shape in part:
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
        index[tensor] = name
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/{name}", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
json.dump({"weight_map": index}, open(f"{folder}/model.safetensors.index.json", "w"))
json.dump({"model_type": "llama", "hidden_size": hidden, "intermediate_size": middle, "num_hidden_layers": layers,
           "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": vocab, "rms_norm_eps": 1e-5,
           "hidden_act": "silu", "tie_word_embeddings": True}, open(f"{folder}/config.json", "w"))
PY
size=$(du --apparent-size -sk "$work/model" | cut -f1)
echo "model: $((size / 1024)) MiB in two shards, address space: $((limit / 1024)) MiB"
check "the model is larger than the limit" [ "$size" -gt $limit ]
limited() { (ulimit -v $limit && exec "$@"); }
check "quantize" expect 0 limited "$tool" quantize "$work/model" -o "$work/quantized" --format nvfp4 --method hadamard --threads 2
check "verify" expect 0 limited "$tool" verify "$work/quantized" --threads 2
finish
