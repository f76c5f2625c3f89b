"""Checkpoints against the peers that read and write them: bitsandbytes and compressed-tensors through transformers, ModelOpt.

  checkpoints_peer.py HALFBYTE PEER_DUMP MODEL_DIR TEXT WORK [--only NAME] [--windows 2] [--tokens 256]

MODEL_DIR is a plain model in BF16, TEXT a UTF-8 file. For every kind: halfbyte quantizes and converts, the peer loads; the peer
quantizes and saves, halfbyte loads. Compared are the decoded weights (bit for bit, in the type that the peer decodes to), logits
(largest difference) and the perplexity of the windows. Where compressed-tensors rounds inputs too, its own forward does; halfbyte-arc
is what no peer runs, so its primary tensors are decoded by compressed-tensors and the rest goes there and back. Prints a table in Markdown; ends with 1 where something differs that should
not. WORK is a folder for intermediate models, some 600 MB.
"""

import argparse
import copy
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

from make_peer_checkpoints import compress, decode_compressed, decode_modelopt, linears, rounding_model, set_weights

# Float sums in another order move logits of some 20 by this much; a wrong weight moves them by far more.
LOGITS = 1e-3


def tool(*args):
    result = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(str(a) for a in args)}\nended with {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def scale_rule(tag):
    """compressed-tensors' own rule for the scales of nvfp4 or mxfp4."""
    return ("--mx-scale" if tag.startswith("mx") else "--global-scale", "compressed-tensors")


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
        set_weights(model, decoded)
        return model

    def stats(self):
        """Statistics of a few windows, for static scales and ARC."""
        path = self.work / "stats.safetensors"
        if not path.exists():
            tool(self.args.halfbyte, "calibrate", self.args.model, "--text", self.work / "text.txt", "--samples", "4", "--seq-len", "256", "-o", path)
        return path

    def row(self, direction, kind, ours, decoded, logits, exact=True, note="", within=2e-3):
        """ours: logits, weights, perplexity. decoded: the peer's weights by name. exact: the peer's rounding to its type loses nothing, so
        logits are equal but for float sums, and the perplexity to 4 digits. within: what perplexities may differ by, relative."""
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
        bad = different or set(weights) != set(decoded) or (exact and (worst > LOGITS or not same_ppl)) or abs(our_ppl / their_ppl - 1) > within
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
                elif not torch.equal(*(f.get_tensor(name).reshape(-1).view(torch.uint8) for f in (a, b))):
                    key = name.split(".weight")[-1] or ".weight"
                    differing[key] = differing.get(key, 0) + 1
        print(f"{kind}: {len(names)} tensors, differing: {differing or 'none'}", flush=True)
        return differing

    # --- bitsandbytes

    def decode_bitsandbytes(self, model):
        import bitsandbytes as bnb

        decoded = {}
        for name, module in linears(model).items():
            state = copy.copy(module.weight.quant_state)
            # Its AVX-512 decoder takes the wrong scales where rows are no whole blocks, so a tensor is given as one row.
            state.shape = torch.Size((1, module.out_features * module.in_features))
            decoded[name + ".weight"] = bnb.functional.dequantize_4bit(module.weight.data, state).reshape(module.out_features, module.in_features)
        return decoded

    def bitsandbytes(self):
        def engine(model):
            # Its CPU kernels round what they multiply to BF16, whatever the model's type.
            return f"from_pretrained without options; its own kernels: {perplexity(self.theirs(model), self.ids):.4f}"

        for tag, options in (("nf4", ("--format", "nf4")), ("nf4-double", ("--format", "nf4", "--double-quant")), ("fp4", ("--format", "fp4"))):
            ours = self.quantized(f"bnb-{tag}", self.float_model, *options)
            folder = self.converted(ours, "bitsandbytes")
            model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
            decoded = self.decode_bitsandbytes(model)
            self.row("ours -> theirs", f"bitsandbytes {tag}", self.ours(ours), decoded, self.theirs(self.plain_with(decoded)), note=engine(model))
            config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=tag[:3], bnb_4bit_use_double_quant="double" in tag,
                                                     bnb_4bit_compute_dtype=torch.float32)
            model = transformers.AutoModelForCausalLM.from_pretrained(self.float_model, quantization_config=config, dtype=torch.float32).eval()
            saved = self.work / f"bnb-{tag}-theirs"
            model.save_pretrained(saved)
            self.add_tokenizer(saved)
            decoded = self.decode_bitsandbytes(model)
            self.row("theirs -> ours", f"bitsandbytes {tag}", self.ours(saved), decoded, self.theirs(self.plain_with(decoded)), note=engine(model))
            differing = self.compare_files(f"bitsandbytes {tag}, quantized by both", folder, saved)
            # The offset is a mean in another order of summing: up to 2 ulp, and with it now and then a code.
            self.failed |= bool(differing) and "double" not in tag
        self.bitsandbytes_blocks()
        # In BF16 too the weights are those of the peer; its engine multiplies them rounded, ours does not.
        folder = self.converted(self.quantized("bnb-bf16", self.args.model, "--format", "nf4"), "bitsandbytes")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        decoded = self.decode_bitsandbytes(model)
        self.row("ours -> theirs", "bitsandbytes nf4, BF16 model", self.ours(folder), decoded, self.theirs(self.plain_with(decoded)), exact=False,
                 note="their weights rounded to BF16")

    def bitsandbytes_blocks(self):
        """Blocks of other sizes: transformers reads them from the files, but cannot be asked for them, so the package itself quantizes. Its
        products on the CPU fail where rows are no whole blocks, and are left out."""
        import bitsandbytes as bnb

        for kind, block, double in (("nf4", 32, False), ("nf4", 256, True), ("fp4", 128, False), ("nf4", 4096, False)):
            tag = f"{kind}, blocks of {block}" + (", double quantization" if double else "")
            ours = self.quantized(f"bnb-{kind}-{block}", self.float_model, "--format", kind, "--block-size", block, *(["--double-quant"] if double else []))
            folder = self.converted(ours, "bitsandbytes")
            model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
            decoded = self.decode_bitsandbytes(model)
            self.row("ours -> theirs", f"bitsandbytes {tag}", self.ours(folder), decoded, self.theirs(self.plain_with(decoded)))
            stored, plain, differing = load_file(folder / "model.safetensors"), load_file(self.float_model / "model.safetensors"), {}
            for name in decoded:
                codes, state = bnb.functional.quantize_4bit(plain[name], blocksize=block, quant_type=kind, compress_statistics=double)
                theirs = {"": codes} | {"." + key: value for key, value in state.as_dict(packed=True).items() if "quant_state" not in key}
                for part, value in theirs.items():
                    if not torch.equal(stored[name + part].reshape(-1).view(torch.uint8), value.reshape(-1).contiguous().view(torch.uint8)):
                        differing[part] = differing.get(part, 0) + 1
            print(f"bitsandbytes {tag}, quantized by both: {len(decoded)} layers, differing: {differing or 'none'}", flush=True)
            self.failed |= bool(differing) and not double

    # --- compressed-tensors

    def compressed_tensors(self):
        load = transformers.CompressedTensorsConfig(dequantize=True) if "dequantize" in transformers.CompressedTensorsConfig.__init__.__code__.co_varnames \
            else transformers.CompressedTensorsConfig(run_compressed=False)
        best = ("--format", "nvfp4", "--method", "best", "--text", self.work / "text.txt", "--samples", "4", "--seq-len", "256")
        kinds = (("nvfp4a16", ("--format", "nvfp4")), ("nvfp4a16 by --method best", best), ("mxfp4a16", ("--format", "mxfp4")))
        for tag, options in kinds:
            ours = self.quantized(f"ct-{tag.replace(' ', '-')}", self.args.model, *options)
            folder = self.converted(ours, "compressed-tensors")
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=load, dtype=torch.float32).eval()
            decoded = decode_compressed(folder, torch.bfloat16)
            for name, module in linears(model).items():
                if not torch.equal(module.weight.float(), decoded[name + ".weight"].float()):
                    sys.exit(f"{folder}: transformers and compressed-tensors decode {name} differently")
            self.row("ours -> theirs", f"compressed-tensors {tag}", self.ours(ours), decoded, self.theirs(model), note="from_pretrained, decompressed")
        for tag, preset, power_of_two in (("nvfp4a16", "NVFP4A16", False), ("nvfp4a16, scales powers of two", "NVFP4A16", True),
                                          ("mxfp4a16", "MXFP4A16", False)):
            saved = self.work / "ct-theirs"
            self.make_compressed(saved, preset, power_of_two)
            decoded = decode_compressed(saved, torch.bfloat16)
            exact = "mxfp4" in tag or power_of_two
            self.row("theirs -> ours", f"compressed-tensors {tag}", self.ours(saved), decoded, self.theirs(self.plain_with(decoded)), exact=exact,
                     note="" if exact else "their weights rounded to BF16")
            if not power_of_two:
                same = self.quantized("ct-same", self.args.model, "--format", tag[:5], *scale_rule(tag))
                ours = self.converted(same, "compressed-tensors")
                self.failed |= bool(self.compare_files(f"compressed-tensors {tag}, quantized by both", ours, saved))

        self.rounded_inputs()
        self.arc()

    def rounded_inputs(self):
        """4-bit weights and inputs. Every layer is given inputs from compressed-tensors' own forward in float32; what both round them to
        must be the same bits. Logits drift apart all the same: where sums differ in the last bit some rounding falls the other way, and all
        that follows differs. How far, their own forward shows, with embeddings changed by one part in a million."""
        from compressed_tensors.quantization.lifecycle.forward import forward_quantize

        static = ("--activation-scope", "static", "--stats", self.stats())
        best = ("--activation-scope", "static", "--method", "best", "--residual", "none", "--no-activation-search", "--text", self.work / "text.txt",
                "--samples", "4", "--seq-len", "256")
        for tag, more in (("nvfp4", static), ("nvfp4 by --method best --residual none", best), ("mxfp4", ())):
            made = self.quantized(f"ct-{tag.split(' ')[0]}-w4a4", self.args.model, "--format", tag.split(" ")[0], "--activations", "same", *scale_rule(tag), *more)
            folder = self.converted(made, "compressed-tensors")
            decoded = decode_compressed(folder, torch.float32)
            model = rounding_model(folder, decoded)
            inputs = {}
            hooks = [module.register_forward_pre_hook(lambda m, args, name=name: inputs.update({name + ".weight": args[0][0].clone()}))
                     for name, module in linears(model).items()]
            with torch.no_grad():
                model(self.ids[:1, :64])
            for hook in hooks:
                hook.remove()
            logits = self.theirs(model)
            tensors, files = {}, [self.work / name for name in ("inputs.safetensors", "dump.safetensors")]
            save_file({name: x.contiguous() for name, x in inputs.items()}, files[0])
            tool(self.args.peer_dump, folder, self.work / "ids.safetensors", files[1], files[0])
            tensors = load_file(files[1])
            different = 0
            for name, module in linears(model).items():
                with torch.no_grad():
                    theirs = forward_quantize(module, inputs[name + ".weight"], "input", module.quantization_scheme.input_activations)
                different += int((tensors[name + ".weight.input"] != theirs).sum())
            for file in files:
                file.unlink()
            count = sum(x.numel() for x in inputs.values())
            with torch.no_grad():
                embedding = model.get_input_embeddings().weight
                embedding *= 1 + 1e-6 * torch.randn(embedding.shape, generator=torch.Generator().manual_seed(1))
            nearby = self.theirs(model)
            self.failed |= different > 0 or len(inputs) != len(decoded)
            self.row("ours -> theirs", f"compressed-tensors {tag}, inputs rounded", self.ours(folder), decoded, logits, exact=False, within=5e-2,
                     note=f"{different} of {count} rounded inputs differ; embeddings 1e-6 off: logits {(nearby - logits).abs().max():.1e}, "
                          f"perplexity {perplexity(nearby, self.ids):.4f}")

    def arc(self):
        """ARC in the layout halfbyte-arc: there and back, the weights of its primary tensors, and what transformers says of it."""
        for order in ("absmax", "natural"):
            ours = self.quantized(f"arc-{order}", self.args.model, "--format", "nvfp4", "--activations", "same", "--method", "arc", "--order", order,
                                  "--residual", "percent=5", "--stats", self.stats())
            folder = self.converted(ours, "halfbyte-arc")
            back = self.converted(folder, "halfbyte")
            differing = self.compare_files(f"ARC, {order} order, there and back", ours, back)
            # from_pretrained itself only warns with these words, and leaves the layers random.
            try:
                transformers.quantizers.AutoQuantizationConfig.from_dict(json.loads((folder / "config.json").read_text())["quantization_config"])
                refused = "knows it, which cannot be"
            except ValueError as error:
                refused = str(error).split(" - supported")[0]
            logits, weights, our_ppl = self.ours(ours)
            arc_logits, arc_weights, arc_ppl = self.ours(folder)
            different = 0
            for name, value in decode_compressed(folder, torch.float32).items():
                different += int((arc_weights[name][:, :value.shape[1]] != value).sum())
            self.failed |= bool(differing) or different > 0 or not torch.equal(logits, arc_logits) or our_ppl != arc_ppl or "halfbyte-arc" not in refused
            print(f"ARC, {order} order: {different} of the primary weights differ, logits equal: {torch.equal(logits, arc_logits)}, perplexity "
                  f"{our_ppl:.4f} and {arc_ppl:.4f}; transformers: {refused}", flush=True)

    def make_compressed(self, folder, preset, power_of_two):
        model = transformers.AutoModelForCausalLM.from_pretrained(self.args.model, dtype=torch.bfloat16)
        compress(model, preset, folder, power_of_two)
        self.add_tokenizer(folder)

    # --- ModelOpt

    def modelopt(self):
        ours = self.quantized("mo-nvfp4", self.args.model, "--format", "nvfp4")
        decoded = decode_modelopt(self.converted(ours, "modelopt"), torch.bfloat16)
        self.row("ours -> theirs", "ModelOpt W4A16_NVFP4", self.ours(ours), decoded, self.theirs(self.plain_with(decoded)), note="its decoder")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("halfbyte", "peer_dump", "model", "text", "work"):
        parser.add_argument(name)
    parser.add_argument("--only", choices=("bitsandbytes", "compressed_tensors", "modelopt"))
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256)
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
