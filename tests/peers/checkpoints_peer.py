"""Checkpoints against the peers that read and write them: bitsandbytes and compressed-tensors through transformers, ModelOpt.

  checkpoints_peer.py HALFBYTE PEER_DUMP MODEL_DIR TEXT WORK [--only NAME] [--windows 2] [--tokens 512]

MODEL_DIR is a plain model in BF16, TEXT a UTF-8 file. For every kind: halfbyte quantizes and converts, the peer loads; the peer
quantizes and saves, halfbyte loads. Compared are the decoded weights (bit for bit, in the type that the peer decodes to), logits
(largest difference) and the perplexity of the windows. Prints a table in Markdown; ends with 1 where something differs that should
not. WORK is a folder for intermediate models, some 600 MB.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools/golden"))

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Float sums in another order move logits of some 20 by this much; a wrong weight moves them by far more.
LOGITS = 1e-3


def linears(model):
    return {name: module for name, module in model.named_modules() if name.endswith(LINEARS)}


def tool(*args):
    result = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(str(a) for a in args)}\nended with {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def perplexity(logits, ids):
    """exp of the mean over windows of their mean losses, like `halfbyte eval`; logits [W, T, V], ids [W, T]."""
    losses = [torch.nn.functional.cross_entropy(w[:-1].double(), i[1:]) for w, i in zip(logits, ids)]
    return torch.stack(losses).mean().exp().item()


class Peers:
    def __init__(self, args):
        self.args = args
        self.work = pathlib.Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        text = " ".join(pathlib.Path(args.text).read_text(encoding="utf-8").split())[:40000]
        (self.work / "text.txt").write_text(text, encoding="utf-8")
        ids = json.loads(subprocess.run([args.halfbyte, "tokenize", args.model, "--jsonl"], input=json.dumps(text) + "\n",
                                        capture_output=True, text=True, check=True).stdout)
        self.ids = torch.tensor(ids[:args.windows * args.tokens]).reshape(args.windows, args.tokens)
        save_file({"input_ids": self.ids.to(torch.int32)}, self.work / "ids.safetensors")
        # The same model in float32, where the peers decode and compute in float32 as halfbyte does.
        self.float_model = self.work / "float32"
        if not self.float_model.exists():
            model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
            model.save_pretrained(self.float_model)
            self.add_tokenizer(self.float_model)
        self.rows, self.failed = [], False

    def quantized(self, name, source, *options):
        out = self.work / name
        tool(self.args.halfbyte, "quantize", source, "-o", out, "--overwrite", *options)
        return out

    def converted(self, source, to):
        out = self.work / f"{source.name}-{to}"
        tool(self.args.halfbyte, "convert", source, "--to", to, "-o", out, "--overwrite")
        return out

    def add_tokenizer(self, folder):
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(pathlib.Path(self.args.model) / name, folder)

    def ours(self, folder):
        """logits [W, T, V] and decoded weights by name of a model folder, and the perplexity that `eval` prints."""
        out = self.work / "dump.safetensors"
        tool(self.args.peer_dump, folder, self.work / "ids.safetensors", out)
        tensors = load_file(out)
        out.unlink()
        eval_json = self.work / "eval.json"
        tool(self.args.halfbyte, "eval", folder, "--perplexity", self.work / "text.txt", "--windows", self.args.windows,
             "--seq-len", self.args.tokens, "--json", eval_json)
        return tensors.pop("logits"), tensors, json.loads(eval_json.read_text())["perplexity"]

    def theirs(self, model):
        with torch.no_grad():
            return torch.cat([model(row[None]).logits.float() for row in self.ids])

    def plain_with(self, decoded):
        """A float32 model with these weights in its linears."""
        model = transformers.AutoModelForCausalLM.from_pretrained(self.float_model, dtype=torch.float32).eval()
        with torch.no_grad():
            for name, module in linears(model).items():
                module.weight.copy_(decoded[name + ".weight"].float())
        return model

    def row(self, direction, kind, ours, decoded, logits, exact=True, note=""):
        """ours: logits, weights, perplexity. decoded: the peer's weights by name. exact: the peer's rounding to its type loses nothing, so
        logits are equal but for float sums, and the perplexity to 4 digits."""
        our_logits, weights, our_ppl = ours
        different = zeros = 0
        for name, value in decoded.items():
            mine = weights[name].to(value.dtype)
            other = int((mine != value).sum())
            different += other
            zeros += int((mine.view(torch.int16 if value.element_size() == 2 else torch.int32) !=
                          value.contiguous().view(torch.int16 if value.element_size() == 2 else torch.int32)).sum()) - other
        if zeros:
            note += f"; {zeros} zeros differ in their sign"
        count = sum(d.numel() for d in decoded.values())
        worst = (our_logits - logits).abs().max().item()
        their_ppl = perplexity(logits, self.ids)
        same_ppl = f"{our_ppl:.4g}" == f"{their_ppl:.4g}"
        bad = different or set(weights) != set(decoded) or (exact and (worst > LOGITS or not same_ppl)) or abs(our_ppl / their_ppl - 1) > 2e-3
        self.failed |= bool(bad)
        self.rows.append(f"| {direction} | {kind} | {different} of {count} | {worst:.1e} | {our_ppl:.4f} | {their_ppl:.4f} | {note} |")
        print(("FAILED " if bad else "") + self.rows[-1], flush=True)

    def compare_files(self, kind, ours, theirs):
        """Which tensors of two folders differ in their bytes."""
        with safe_open(ours / "model.safetensors", "pt") as a, safe_open(theirs / "model.safetensors", "pt") as b:
            names = sorted(set(a.keys()) | set(b.keys()))
            differing = {}
            for name in names:
                if name not in a.keys() or name not in b.keys():
                    differing[name.split(".weight")[-1] + " (missing)"] = differing.get(name, 0) + 1
                elif not torch.equal(a.get_tensor(name).view(torch.uint8), b.get_tensor(name).view(torch.uint8)):
                    key = name.split(".weight")[-1] or ".weight"
                    differing[key] = differing.get(key, 0) + 1
        print(f"{kind}: {len(names)} tensors, differing: {differing or 'none'}", flush=True)
        return differing

    # --- bitsandbytes

    def bitsandbytes(self):
        import bitsandbytes as bnb

        def decode(model):
            return {n + ".weight": bnb.functional.dequantize_4bit(m.weight.data, m.weight.quant_state) for n, m in linears(model).items()}

        def engine(model):
            # Its CPU kernels round what they multiply to BF16, whatever the model's type.
            return f"from_pretrained without options; its own kernels: {perplexity(self.theirs(model), self.ids):.4f}"

        for tag, options in (("nf4", ("--format", "nf4")), ("nf4-double", ("--format", "nf4", "--double-quant")), ("fp4", ("--format", "fp4"))):
            ours = self.quantized(f"bnb-{tag}", self.float_model, *options)
            folder = self.converted(ours, "bitsandbytes")
            model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
            decoded = decode(model)
            self.row("ours -> theirs", f"bitsandbytes {tag}", self.ours(ours), decoded, self.theirs(self.plain_with(decoded)), note=engine(model))
            config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=tag[:3], bnb_4bit_use_double_quant="double" in tag,
                                                     bnb_4bit_compute_dtype=torch.float32)
            model = transformers.AutoModelForCausalLM.from_pretrained(self.float_model, quantization_config=config, dtype=torch.float32).eval()
            saved = self.work / f"bnb-{tag}-theirs"
            model.save_pretrained(saved)
            self.add_tokenizer(saved)
            decoded = decode(model)
            self.row("theirs -> ours", f"bitsandbytes {tag}", self.ours(saved), decoded, self.theirs(self.plain_with(decoded)), note=engine(model))
            differing = self.compare_files(f"bitsandbytes {tag}, quantized by both", folder, saved)
            # The offset is a mean in another order of summing: up to 2 ulp, and with it now and then a code.
            self.failed |= bool(differing) and "double" not in tag
        # In BF16 too the weights are those of the peer; its engine multiplies them rounded, ours does not.
        folder = self.converted(self.quantized("bnb-bf16", self.args.model, "--format", "nf4"), "bitsandbytes")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        decoded = decode(model)
        self.row("ours -> theirs", "bitsandbytes nf4, BF16 model", self.ours(folder), decoded, self.theirs(self.plain_with(decoded)), exact=False,
                 note="their weights rounded to BF16")

    # --- compressed-tensors

    def decode_compressed(self, folder):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationConfig

        entry = json.loads((folder / "config.json").read_text())["quantization_config"]
        config = QuantizationConfig.model_validate(entry)
        scheme = config.config_groups["group_0"]
        decoder = BaseCompressor.get_value_from_registry(entry["format"])
        stored = load_file(folder / "model.safetensors")
        decoded = {}
        for name in [n[:-len(".weight_packed")] for n in stored if n.endswith(".weight_packed")]:
            parts = {k[len(name) + 1:]: v for k, v in stored.items() if k.startswith(name + ".")}
            decoded[name + ".weight"] = decoder.decompress(parts, scheme)["weight"]
        return decoded

    def compressed_tensors(self):
        load = transformers.CompressedTensorsConfig(dequantize=True) if "dequantize" in transformers.CompressedTensorsConfig.__init__.__code__.co_varnames \
            else transformers.CompressedTensorsConfig(run_compressed=False)
        kinds = (("nvfp4a16", ("--format", "nvfp4")), ("mxfp4a16", ("--format", "mxfp4")))
        for tag, options in kinds:
            ours = self.quantized(f"ct-{tag}", self.args.model, *options)
            folder = self.converted(ours, "compressed-tensors")
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=load, dtype=torch.float32).eval()
            decoded = self.decode_compressed(folder)
            for name, module in linears(model).items():
                if not torch.equal(module.weight.float(), decoded[name + ".weight"].float()):
                    sys.exit(f"{folder}: transformers and compressed-tensors decode {name} differently")
            self.row("ours -> theirs", f"compressed-tensors {tag}", self.ours(ours), decoded, self.theirs(model), note="from_pretrained, decompressed")
        for tag, preset, power_of_two in (("nvfp4a16", "NVFP4A16", False), ("nvfp4a16, scales powers of two", "NVFP4A16", True),
                                          ("mxfp4a16", "MXFP4A16", False)):
            saved = self.work / "ct-theirs"
            self.make_compressed(saved, preset, power_of_two)
            decoded = self.decode_compressed(saved)
            exact = "mxfp4" in tag or power_of_two
            self.row("theirs -> ours", f"compressed-tensors {tag}", self.ours(saved), decoded, self.theirs(self.plain_with(decoded)), exact=exact,
                     note="" if exact else "their weights rounded to BF16")
            if not power_of_two:
                ours = self.converted(self.quantized("ct-same", self.args.model, "--format", tag[:5], "--global-scale", "compressed-tensors",
                                                     "--mx-scale", "compressed-tensors"), "compressed-tensors")
                self.failed |= bool(self.compare_files(f"compressed-tensors {tag}, quantized by both", ours, saved))

    def make_compressed(self, folder, preset, power_of_two):
        from make_peer_checkpoints import compress

        model = transformers.AutoModelForCausalLM.from_pretrained(self.args.model, dtype=torch.bfloat16)
        compress(model, preset, folder, power_of_two)
        self.add_tokenizer(folder)

    # --- ModelOpt

    def modelopt(self):
        from modelopt.torch.quantization.qtensor import NVFP4QTensor

        def decode(folder):
            stored = load_file(folder / "model.safetensors")
            return {n[:-2 - len("_scale")]: NVFP4QTensor(torch.Size((stored[n[:-8]].shape[0], 2 * stored[n[:-8]].shape[1])), torch.bfloat16, stored[n[:-8]])
                    .dequantize(dtype=torch.bfloat16, scale=stored[n[:-8] + "_scale"], double_scale=stored[n], block_sizes={-1: 16})
                    for n in stored if n.endswith(".weight_scale_2")}

        ours = self.quantized("mo-nvfp4", self.args.model, "--format", "nvfp4")
        decoded = decode(self.converted(ours, "modelopt"))
        self.row("ours -> theirs", "ModelOpt W4A16_NVFP4", self.ours(ours), decoded, self.theirs(self.plain_with(decoded)), note="its decoder")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("halfbyte", "peer_dump", "model", "text", "work"):
        parser.add_argument(name)
    parser.add_argument("--only", choices=("bitsandbytes", "compressed_tensors", "modelopt"))
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=512)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    versions = {}
    for package in ("torch", "transformers", "bitsandbytes", "compressed-tensors", "nvidia-modelopt"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    peers = Peers(args)
    for name, package in (("bitsandbytes", "bitsandbytes"), ("compressed_tensors", "compressed-tensors"), ("modelopt", "nvidia-modelopt")):
        if args.only not in (None, name):
            continue
        if package in versions:
            getattr(peers, name)()
        else:
            print(f"{package} is not installed: skipped")
    print("\n" + ", ".join(f"{p} {v}" for p, v in versions.items()))
    print("\n| direction | kind | weights that differ | logits, largest difference | perplexity, ours | theirs | |\n|---|---|---|---|---|---|---|")
    print("\n".join(peers.rows))
    sys.exit(1 if peers.failed else 0)


if __name__ == "__main__":
    main()
