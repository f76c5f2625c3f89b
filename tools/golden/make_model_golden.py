"""Makes the golden models of tests/golden/models: tiny random Hugging Face checkpoints and the logits that transformers computes for them.

  make_model_golden.py tiny OUT                 every tiny model as OUT/NAME/{config.json, model.safetensors, golden.safetensors, ...}
  make_model_golden.py smollm2 OUT --model DIR --wikitext2 wiki.test.raw --lee lee_background.cor
                                                OUT/smollm2_logits.safetensors, logits of the real model (DIR: its BF16 import)

Weights are random but BF16-exact; logits are float32 arithmetic on the CPU with eager attention. Every tiny model comes with mutations, each a
mistake an engine could make (rope scaling forgotten, a bias dropped, a window ignored); the script fails unless each one moves the logits
by at least kVisible, so that a test with a tolerance of 2e-3 cannot miss it. Needs torch, transformers, safetensors.
"""

import argparse
import copy
import json
import math
import os
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

kVisible = 0.05  # least change of a logit that a mutation must cause; 25 times the tests' tolerance
kColumnStep = 193  # SmolLM2 golden: every 193rd vocabulary column is kept, 255 of 49152
kPositions = 256  # SmolLM2 golden: the first tokens of each text
kLlama3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=64)


def rope(theta, **scaling):
    return dict(rope_type="default", rope_theta=theta) | scaling


def shape(**changes):
    """Config arguments that the models share; an odd vocabulary size, so that no kernel finds a round N."""
    return dict(vocab_size=163, hidden_size=64, intermediate_size=104, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=512, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False) | changes


# Mutations. Each returns the logits of a model with one thing wrong; `model` is a directory, see `logits_of`.
def with_config(**changes):
    return lambda model, ids: logits_of(model, ids, config_changes=changes)


def with_weights(part, change):
    """change(tensor) on every weight whose name contains `part`."""
    def run(model, ids):
        return logits_of(model, ids, weight_change=lambda name, w: change(w) if part in name else w)
    return run


def swap_kv_heads(head_dim):
    return lambda w: w.reshape(-1, head_dim, *w.shape[1:]).flip(0).reshape(w.shape)


kNoBias = {f"{p} bias dropped": with_weights(f"{p}_proj.bias", torch.zeros_like) for p in ("q", "k", "v")}

# name, config, number of tokens, mutations, and options: `legacy` writes config.json with the keys of transformers 4, `drop` leaves out keys of
# the legacy config that older checkpoints lack, `shard` is a max_shard_size, `file_head` adds a lm_head to a tied checkpoint.
kModels = {
    "llama3": dict(
        config=LlamaConfig(**shape(rope_parameters=kLlama3)), tokens=200, drop=["head_dim"],
        mutations={
            "rope scaling ignored": with_config(rope_parameters=rope(500000.0)),
            "scaled linearly": with_config(rope_parameters=rope(500000.0, rope_type="linear", factor=8.0)),
            "no smooth zone": with_config(rope_parameters=kLlama3 | dict(high_freq_factor=1.0001)),
            "default theta": with_config(rope_parameters=kLlama3 | dict(rope_theta=10000.0)),
            "kv heads swapped": with_weights("v_proj", swap_kv_heads(16)),
        }),
    "llama_tied": dict(
        config=LlamaConfig(**shape(hidden_size=48, head_dim=20, num_key_value_heads=4, tie_word_embeddings=True, rms_norm_eps=1e-3,
                                   rope_parameters=rope(10000.0))), tokens=96,
        mutations={
            "eps 1e-5": with_config(rms_norm_eps=1e-5),
            "norm weights ignored": with_weights("layernorm", torch.ones_like),
        }),
    "qwen2": dict(
        config=Qwen2Config(**shape(tie_word_embeddings=True, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0))), tokens=128,
        mutations=kNoBias | {"default theta": with_config(rope_parameters=rope(10000.0))}),
    "qwen2_unused_window": dict(
        config=Qwen2Config(**shape(rms_norm_eps=1e-6, rope_parameters=rope(1000000.0))), tokens=64, legacy=True,
        legacy_changes=dict(use_sliding_window=False, sliding_window=16, max_window_layers=0),
        mutations=kNoBias | {
            "window used": with_config(use_sliding_window=True, sliding_window=16, layer_types=["sliding_attention"] * 2)}),
    "qwen3": dict(
        config=Qwen3Config(**shape(hidden_size=40, head_dim=16, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0))), tokens=128,
        mutations={
            "q norm weights ignored": with_weights("q_norm", torch.ones_like),
            "k norm weights ignored": with_weights("k_norm", torch.ones_like),
        }),
    "mistral": dict(
        config=MistralConfig(**shape(sliding_window=None, rope_parameters=rope(1000000.0))), tokens=96,
        mutations={"window of 16": with_config(sliding_window=16)}),
    "mistral_swa": dict(
        config=MistralConfig(**shape(sliding_window=16, rope_parameters=rope(10000.0))), tokens=96, drop=["head_dim"],
        mutations={
            "window ignored": with_config(sliding_window=None),
            "window of 15": with_config(sliding_window=15),
            "window of 17": with_config(sliding_window=17),
        }),
    "smollm2_like": dict(
        config=LlamaConfig(**shape(hidden_size=72, num_attention_heads=9, num_key_value_heads=3, num_hidden_layers=3, tie_word_embeddings=True,
                                   rope_parameters=rope(100000.0))), tokens=128,
        mutations={
            "kv heads swapped": with_weights("v_proj", swap_kv_heads(8)),
            "default theta": with_config(rope_parameters=rope(10000.0)),
        }),
    "llama_sharded": dict(
        config=LlamaConfig(**shape(rope_parameters=rope(10000.0))), tokens=64, shard="48KB", mutations={}),
    "llama_legacy": dict(
        config=LlamaConfig(**shape(rope_parameters=kLlama3)), tokens=200, legacy=True, drop=["head_dim"],
        mutations={"rope scaling ignored": with_config(rope_parameters=rope(500000.0))}),
    "llama_linear": dict(
        config=LlamaConfig(**shape(num_key_value_heads=4, rope_parameters=rope(10000.0, rope_type="linear", factor=4.0))), tokens=128,
        drop=["head_dim", "num_key_value_heads"],
        mutations={"rope scaling ignored": with_config(rope_parameters=rope(10000.0))}),
    "tied_with_head": dict(
        config=LlamaConfig(**shape(tie_word_embeddings=True, rope_parameters=rope(10000.0))), tokens=64, file_head=True,
        mutations={"embedding used as head": with_weights("never", torch.zeros_like)}),
}


def random_weights(model, tied, generator):
    """Fills the model with BF16-exact values whose scale makes attention peaked, norms uneven and logits spread over several units."""
    def normal(p, std, mean=0.0):
        p.copy_((torch.randn(p.shape, generator=generator) * std + mean).to(torch.bfloat16))

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                is_head_norm = "q_norm" in name or "k_norm" in name
                normal(p, 0.3, mean=1.3 if is_head_norm else 1.0)
            elif name.endswith("bias"):
                normal(p, 0.5)
            elif "embed_tokens" in name:
                normal(p, 0.3 if tied else 0.1)
            elif "lm_head" in name:
                normal(p, 2.0 / math.sqrt(p.shape[1]))
            else:
                gain = 1.5 if "q_proj" in name or "k_proj" in name else 1.0
                normal(p, gain / math.sqrt(p.shape[1]))


def weight_files(model_dir):
    return sorted(os.path.join(model_dir, f) for f in os.listdir(model_dir) if f.startswith("model") and f.endswith(".safetensors"))


def logits_of(model_dir, ids, config_changes=None, weight_change=None, file_head=False, dtype=torch.float32):
    """Logits [T, vocab] of the checkpoint in model_dir; file_head: the lm_head in the file is used although the config says tied."""
    config = AutoConfig.from_pretrained(model_dir)
    for key, value in (config_changes or {}).items():
        setattr(config, key, copy.deepcopy(value))
    if file_head:
        config.tie_word_embeddings = False
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    weights = {}
    for path in weight_files(model_dir):
        weights |= {n: w.float() for n, w in load_file(path).items()}
    if weight_change:
        weights = {n: weight_change(n, w) for n, w in weights.items()}
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, strict=True)
    model.to(dtype).eval()
    with torch.no_grad():
        return model(torch.tensor(ids)[None], use_cache=False).logits[0].float()


def legacy_config(config, drop, changes):
    """The same configuration under the keys that transformers 4 wrote: rope_theta, rope_scaling and torch_dtype on the top level."""
    out = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype", "layer_types") and k not in drop}
    parameters = dict(config["rope_parameters"])
    out["rope_theta"] = parameters.pop("rope_theta")
    if parameters["rope_type"] == "linear":
        parameters["type"] = parameters.pop("rope_type")  # the key's name before transformers 4.43
    out["rope_scaling"] = None if parameters.get("rope_type") == "default" else parameters
    out["torch_dtype"] = config["dtype"]
    out["transformers_version"] = "4.45.2"
    return dict(sorted((out | changes).items()))


def write_json(path, value):
    with open(path, "w", encoding="utf8") as f:
        f.write(json.dumps(value, indent=2) + "\n")


def metadata():
    """One entry only: the order of several is not fixed, and the same run must give the same bytes."""
    return {"made_with": f"torch {torch.__version__}, transformers {transformers.__version__}, eager attention, float32"}


def make_tiny(out_dir, name, spec, seed):
    directory = os.path.join(out_dir, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    generator = torch.Generator().manual_seed(seed)
    config, file_head = spec["config"], spec.get("file_head", False)

    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    random_weights(model, config.tie_word_embeddings, generator)
    model.save_pretrained(directory, max_shard_size=spec.get("shard", "1GB"))
    os.remove(os.path.join(directory, "generation_config.json"))
    if file_head:
        path = os.path.join(directory, "model.safetensors")
        weights = load_file(path)
        head = torch.randn(config.vocab_size, config.hidden_size, generator=generator) * 2.0 / math.sqrt(config.hidden_size)
        weights["lm_head.weight"] = head.to(torch.bfloat16)
        save_file(weights, path, metadata={"format": "pt"})

    # The same configuration in both styles: config.json is what a test loads, the other one must be read as the same model.
    config_path = os.path.join(directory, "config.json")
    with open(config_path, encoding="utf8") as f:
        modern = json.load(f)
    legacy = legacy_config(modern, spec.get("drop", []), spec.get("legacy_changes", {}))
    write_json(config_path, legacy if spec.get("legacy") else modern)
    write_json(os.path.join(directory, "config.transformers4.json"), legacy)

    ids = torch.randint(0, config.vocab_size, (spec["tokens"],), generator=generator)
    ids[3], ids[7] = 0, config.vocab_size - 1
    ids = ids.tolist()
    logits = logits_of(directory, ids, file_head=file_head)
    save_file({"input_ids": torch.tensor(ids, dtype=torch.int32), "logits": logits.contiguous()},
              os.path.join(directory, "golden.safetensors"), metadata=metadata())
    for file in os.listdir(directory):
        os.chmod(os.path.join(directory, file), 0o644)
    check_tiny(directory, name, spec, ids, logits)


def check_tiny(directory, name, spec, ids, logits):
    """Fails unless the golden is finite, spread, insensitive to rounding, sensitive to every mutation, and the same for both config styles."""
    file_head = spec.get("file_head", False)
    noise = (logits - logits_of(directory, ids, file_head=file_head, dtype=torch.float64)).abs().max().item()
    problems = []
    if not torch.isfinite(logits).all() or logits.std() < 1:
        problems.append(f"logits spread only {logits.std():.3f}")
    if noise > 1e-4:
        problems.append(f"matrix products in float64 change the logits by {noise:.1e}")
    loaded = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        if not torch.equal(loaded(torch.tensor(ids)[None], use_cache=False).logits[0], logits):
            problems.append("from_pretrained gives other logits")
    moved = {}
    for mistake, run in spec["mutations"].items():
        moved[mistake] = (run(directory, ids) - logits).abs().max().item()
        if moved[mistake] < kVisible:
            problems.append(f"'{mistake}' moves the logits only by {moved[mistake]:.1e}")

    # The second config file, read by transformers in place of the first.
    config_path = os.path.join(directory, "config.json")
    with open(config_path, encoding="utf8") as f:
        kept = f.read()
    shutil.copyfile(os.path.join(directory, "config.transformers4.json"), config_path)
    if not torch.equal(logits_of(directory, ids, file_head=file_head), logits):
        problems.append("config.transformers4.json is another model")
    with open(config_path, "w", encoding="utf8") as f:
        f.write(kept)

    size = sum(os.path.getsize(os.path.join(directory, f)) for f in os.listdir(directory))
    print(f"{name}: {len(ids)} tokens, {size / 1000:.0f} kB, logits std {logits.std():.2f} in [{logits.min():.1f}, {logits.max():.1f}], "
          f"float32 noise {noise:.1e}; " + ", ".join(f"{k} {v:.2f}" for k, v in moved.items()))
    if problems:
        sys.exit(f"{name}: " + "; ".join(problems))


def check_llama3_zones():
    """The three zones of llama3 scaling (kept, smoothed, divided) must all hold a frequency."""
    head_dim = 16
    zones = set()
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * kLlama3["rope_theta"] ** (i / head_dim)
        old = kLlama3["original_max_position_embeddings"]
        zones.add("kept" if wavelength < old / kLlama3["high_freq_factor"] else "divided" if wavelength > old else "smoothed")
    if len(zones) != 3:
        sys.exit(f"llama3 scaling reaches only the zones {sorted(zones)}")


def protocol_text(path):
    """The `windows` protocol: rows of the raw file, blank ones as empty strings, the others with their newline, joined by two newlines."""
    with open(path, encoding="utf8") as f:
        return "\n\n".join(row if row.strip() else "" for row in f)


def make_smollm2(out_dir, model_dir, texts):
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    tensors = {}
    columns = torch.arange(0, AutoConfig.from_pretrained(model_dir).vocab_size, kColumnStep, dtype=torch.int32)
    for label, path in texts.items():
        ids = tokenizer(protocol_text(path), add_special_tokens=False).input_ids[:kPositions]
        logits = logits_of(model_dir, ids)
        tensors |= {
            f"{label}.ids": torch.tensor(ids, dtype=torch.int32),
            f"{label}.logits": logits[:, columns.long()].contiguous(),
            f"{label}.argmax": logits.argmax(-1).to(torch.int32),
            f"{label}.max_logit": logits.amax(-1).contiguous(),
            f"{label}.logsumexp": logits.double().logsumexp(-1).float().contiguous(),
        }
        loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()
        top = logits.topk(2, -1).values
        print(f"{label}: ids {ids[:16]}, mean -log p {loss:.5f}, least gap between the two largest logits {(top[:, 0] - top[:, 1]).min():.1e}")
    path = os.path.join(out_dir, "smollm2_logits.safetensors")
    save_file(tensors | {"columns": columns}, path, metadata=metadata())
    os.chmod(path, 0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    tiny = commands.add_parser("tiny")
    tiny.add_argument("out")
    tiny.add_argument("--only", help="one model by name")
    real = commands.add_parser("smollm2")
    real.add_argument("out")
    real.add_argument("--model", required=True)
    real.add_argument("--wikitext2", required=True)
    real.add_argument("--lee", required=True)
    args = parser.parse_args()
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if args.command == "tiny":
        check_llama3_zones()
        for seed, (name, spec) in enumerate(kModels.items(), start=1001):
            if args.only in (None, name):
                make_tiny(args.out, name, spec, seed)
    else:
        make_smollm2(args.out, args.model, {"wikitext2": args.wikitext2, "lee": args.lee})


if __name__ == "__main__":
    main()
