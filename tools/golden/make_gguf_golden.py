"""Writes the golden data that gguf-py, tokenizers and the safetensors package define: block types, files, vocabularies.

    python tools/golden/make_gguf_golden.py tests/golden

gguf_blocks.safetensors         TYPE.bytes [rows, row bytes] quantized or random blocks, TYPE.deq [rows, 256] their values
gguf_writer_order.safetensors   one tensor of every dtype, written by the reference implementation
gguf/NAME.gguf                  the model models/NAME (see make_model_golden.py) as GGUF, with a trained vocabulary
gguf/NAME.tokenizer.json        that vocabulary as the tokenizers library saves it
gguf/spm.*                      a model of quantized tensors with a SentencePiece vocabulary; spm.safetensors: its values
"""

import importlib.metadata
import json
import os
import random
import sys
import tempfile

import gguf
import numpy as np
import sentencepiece
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.convert_slow_tokenizer import generate_merges

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


# Models.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
TEXT = [f"The {a} {b}s {c} of {n} years, isn't it?\n" for a in ("king", "queen", "house", "river", "town")
        for b in ("say", "show", "play") for c in ("north", "south", "half") for n in (1, 20, 1984)]


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.{kind}"


def interleave(w, heads):
    """The converters' order of q and k rows for rope over neighbouring pairs."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)


def add_config(writer, arch, config):
    rope = config.get("rope_parameters") or {}
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if arch == "llama":
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(config["head_dim"])
    if rope.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "llama3":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        dim, old = config["head_dim"], rope["original_max_position_embeddings"]
        low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
        divisors = []
        for freq in 1.0 / (rope["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)):
            turns = old / (2 * np.pi / freq)
            smooth = (turns - low) / (high - low)
            divisors.append(1 if turns > high else factor if turns < low else 1 / ((1 - smooth) / factor + smooth))
        writer.add_tensor("rope_freqs.weight", np.array(divisors, np.float32))


def add_vocabulary(writer, rows, tokens, kinds):
    """Tokens by id; ids up to rows that have none are filled up as unused."""
    full = [tokens.get(i, f"[PAD{i}]") for i in range(rows)]
    writer.add_token_list(full)
    writer.add_token_types([kinds.get(i, 1) if i in tokens else 5 for i in range(rows)])


def byte_level(pre, rows):
    """A byte-level BPE of at most rows - 3 entries in the way of that pre-tokenizer, with three special tokens."""
    t = tokenizers.Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre in ("gpt-2", "smollm"))
    first = {"smollm": pre_tokenizers.Digits(individual_digits=True),
             "llama-bpe": pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
             "qwen2": pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated")}.get(pre)
    t.pre_tokenizer = pre_tokenizers.Sequence([first, level]) if first else level
    if pre == "qwen2":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    special = ["<|unk|>", "<|begin|>", "<|end|>"]
    t.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=rows - 3, special_tokens=special, show_progress=False))
    t.add_tokens([tokenizers.AddedToken("<user>", normalized=False)])
    if pre == "llama-bpe":
        t.post_processor = processors.TemplateProcessing(
            single="<|begin|>:0 $A:0", pair="<|begin|>:0 $A:0 <|begin|>:1 $B:1", special_tokens=[("<|begin|>", 1)])
    return t


def write_model(name, arch, pre):
    config = json.load(open(f"{out}/models/{name}/config.json"))
    weights = load_file(f"{out}/models/{name}/model.safetensors")
    writer = gguf.GGUFWriter(f"{out}/gguf/{name}.gguf", arch)
    add_config(writer, arch, config)
    for key, w in sorted(weights.items()):
        values = w.float().numpy()
        if arch == "llama" and ("q_proj" in key or "k_proj" in key):
            values = interleave(values, config["num_attention_heads" if "q_proj" in key else "num_key_value_heads"])
        if w.dim() == 2:
            writer.add_tensor(gguf_name(key), gguf.quantize(np.ascontiguousarray(values), types.BF16),
                              raw_dtype=types.BF16)
        else:
            writer.add_tensor(gguf_name(key), np.ascontiguousarray(values))
    t = byte_level(pre, config["vocab_size"])
    t.save(f"{out}/gguf/{name}.tokenizer.json", pretty=False)
    saved = json.load(open(f"{out}/gguf/{name}.tokenizer.json"))
    tokens = {i: text for text, i in t.get_vocab(with_added_tokens=True).items()}
    user = t.token_to_id("<user>")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    add_vocabulary(writer, config["vocab_size"], tokens, {0: 3, 1: 3, 2: 3, user: 4})
    writer.add_token_merges([" ".join(m) for m in saved["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(0)
    writer.add_chat_template("{{ messages }}")
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sentencepiece_vocabulary(rows):
    """Pieces, scores, types, and the tokenizer that transformers' conversion makes of them."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = f"{folder}/text"
        open(corpus, "w").write("".join(TEXT) * 3)
        sentencepiece.SentencePieceTrainer.train(
            input=corpus, model_prefix=f"{folder}/m", model_type="bpe", vocab_size=rows, byte_fallback=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, hard_vocab_limit=False,
            user_defined_symbols=["<user>"], minloglevel=2)
        sp = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/m.model")
    n = sp.get_piece_size()
    pieces = [sp.id_to_piece(i) for i in range(n)]
    scores = [float(np.float32(sp.get_score(i))) for i in range(n)]
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in range(n)]
    kinds[pieces.index("<user>")] = 4
    vocab = {p: i for i, p in enumerate(pieces)}
    skip = [p for p, k in zip(pieces, kinds) if k != 1]
    merges = generate_merges(vocab, dict(zip(pieces, scores)), skip)
    t = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([tokenizers.AddedToken(p, normalized=False) for p in ("<unk>", "<s>", "</s>")])
    t.add_tokens([tokenizers.AddedToken("<user>", normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="<s>:0 $A:0", pair="<s>:0 $A:0 <s>:1 $B:1",
                                                     special_tokens=[("<s>", 1)])
    words = " ".join(TEXT).split(" ") + ["", "\u00e9t\u00e9", "aaa", "\n", "\U0001f600", "yearsyears"]
    for seed in range(2000):
        text = " ".join(random.Random(seed).choices(words, k=seed % 12))
        if text:
            assert t.encode(text, add_special_tokens=False).ids == sp.encode(text), text
    return pieces, scores, kinds, t


def write_spm():
    pieces, scores, kinds, t = sentencepiece_vocabulary(400)
    t.save(f"{out}/gguf/spm.tokenizer.json", pretty=False)
    config = dict(num_hidden_layers=1, max_position_embeddings=64, hidden_size=256, intermediate_size=64,
                  num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=len(pieces), head_dim=64,
                  rope_parameters=dict(rope_theta=10000.0))
    writer = gguf.GGUFWriter(f"{out}/gguf/spm.gguf", "llama")
    add_config(writer, "llama", config)
    expected = {}

    def add(name, shape, kind, heads=0):
        w = rng.standard_normal(shape).astype(np.float32) * np.float32(0.05)
        if heads:
            w = interleave(w, heads)
        if kind in (types.Q6_K, types.Q4_K):  # gguf-py has no quantizer for these
            values, size = gguf.GGML_QUANT_SIZES[kind]
            data = rng.integers(0, 256, (shape[0], shape[1] // values, size), dtype=np.uint8)
            for at in [208] if kind == types.Q6_K else [0, 2]:
                data[:, :, at:at + 2] = np.array([0.0007], np.float16).view(np.uint8)
            data = data.reshape(shape[0], -1)
        else:
            data = gguf.quantize(w, kind)
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
        v = gguf.dequantize(data, kind).astype(np.float32).reshape(shape)
        if heads:
            v = v.reshape(heads, shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(shape)
        expected[name] = torch.from_numpy(np.ascontiguousarray(v)).to(torch.bfloat16)

    add("model.embed_tokens.weight", (len(pieces), 256), types.Q8_0)
    layer = "model.layers.0."
    add(layer + "input_layernorm.weight", (256,), types.F32)
    add(layer + "self_attn.q_proj.weight", (256, 256), types.Q4_K, 4)
    add(layer + "self_attn.k_proj.weight", (128, 256), types.Q4_1, 2)
    add(layer + "self_attn.v_proj.weight", (128, 256), types.Q6_K)
    add(layer + "self_attn.o_proj.weight", (256, 256), types.Q5_0)
    for part, bias, kind, heads in (("q", 256, types.F32, 4), ("k", 128, types.F16, 2), ("v", 128, types.F32, 0),
                                    ("o", 256, types.BF16, 0)):
        add(f"{layer}self_attn.{part}_proj.bias", (bias,), kind, heads)
    add(layer + "post_attention_layernorm.weight", (256,), types.F32)
    add(layer + "mlp.gate_proj.weight", (64, 256), types.Q4_0)
    add(layer + "mlp.up_proj.weight", (64, 256), types.MXFP4)
    add(layer + "mlp.down_proj.weight", (256, 64), types.Q5_1)
    add("model.norm.weight", (256,), types.F32)
    save_file(expected, f"{out}/gguf/spm.safetensors", metadata={"made_with": versions})
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    finish(writer)


os.makedirs(f"{out}/gguf", exist_ok=True)
write_model("llama3", "llama", "llama-bpe")
write_model("smollm2_like", "llama", "smollm")
write_model("mistral", "llama", "gpt-2")
write_model("llama_linear", "llama", "gpt-2")
write_model("qwen2", "qwen2", "qwen2")
write_model("qwen3", "qwen3", "qwen2")
write_spm()
