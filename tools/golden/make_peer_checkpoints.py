"""Writes small checkpoints with the peers' own code: bitsandbytes and compressed-tensors through transformers, ModelOpt.

  make_peer_checkpoints.py TARGET [bitsandbytes] [compressed-tensors] [modelopt]     (without names: all)

One folder a checkpoint, all of the same tiny llama model (seeded): config.json, model.safetensors, and expected.safetensors with
what the peer decodes every quantized weight to (its own type), input_ids I32 [T] and the logits of a float32 model with the weights as
the peer decodes them to float32, F32 [T, vocab]; where compressed-tensors rounds inputs too, logits_rounded_inputs, of its own forward.
Needs torch, transformers, safetensors, accelerate, bitsandbytes, compressed-tensors, nvidia-modelopt; runs on a CPU.
"""

import copy
import importlib.metadata
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def tiny_model():
    torch.manual_seed(20261130)
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
                                      head_dim=16, vocab_size=99, max_position_embeddings=128, tie_word_embeddings=False, dtype=torch.bfloat16,
                                      architectures=["LlamaForCausalLM"])
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                parameter.copy_(torch.randn_like(parameter, dtype=torch.float32) * (0.5 if "embed" in name else 0.12))
    return model


def linears(model):
    return {name: module for name, module in model.named_modules() if name.endswith(LINEARS)}


def set_weights(model, decoded):
    with torch.no_grad():
        for name, module in linears(model).items():
            module.weight.copy_(decoded[name + ".weight"])


def finish(folder, decode, versions, rounds_inputs=False):
    """expected.safetensors. decode(type) gives the weights by name as the peer decodes them to that type."""
    tensors = decode(torch.bfloat16)
    source = tiny_model()
    # Not source.float(): its rotary frequencies were rounded to BF16 with the weights.
    model = transformers.LlamaForCausalLM(source.config).float().eval()
    model.load_state_dict(source.state_dict())
    set_weights(model, decode(torch.float32))
    ids = torch.randint(0, 99, (24,), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        tensors |= {"input_ids": ids.to(torch.int32), "logits": model(ids[None]).logits[0]}
        if rounds_inputs:
            tensors["logits_rounded_inputs"] = rounding_model(folder, decode(torch.float32))(ids[None]).logits[0]
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    made = "; ".join(f"{p} {importlib.metadata.version(p)}" for p in versions + ["torch", "transformers"])
    save_file(tensors, folder / "expected.safetensors", metadata={"made_with": made})
    (folder / "generation_config.json").unlink(missing_ok=True)
    print(folder, sum(f.stat().st_size for f in folder.iterdir()))


def make_bitsandbytes(target):
    import bitsandbytes as bnb

    plain = target / "plain"
    tiny_model().save_pretrained(plain)
    for tag, kind, double in (("nf4", "nf4", False), ("nf4_double", "nf4", True), ("fp4", "fp4", False)):
        config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=double,
                                                 bnb_4bit_compute_dtype=torch.bfloat16)
        model = transformers.AutoModelForCausalLM.from_pretrained(plain, quantization_config=config, dtype=torch.bfloat16, device_map="cpu")
        folder = target / f"bitsandbytes_{tag}"
        model.save_pretrained(folder)

        def decode(dtype):
            decoded = {}
            for name, module in linears(model).items():
                state = copy.copy(module.weight.quant_state)
                state.dtype = dtype
                decoded[name + ".weight"] = bnb.functional.dequantize_4bit(module.weight.data, state)
            return decoded

        finish(folder, decode, ["bitsandbytes"])


def compress(model, preset, folder, power_of_two=False):
    """Quantizes the linears of a model to nearest with compressed-tensors and saves it. power_of_two: the weights' global scales are
    rounded down to one, so that every decoded value is exact in BF16."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": preset_name_to_scheme(preset, ["Linear"])}, ignore=["lm_head"]))
    # Layers that engines run as one product share a global scale, as llm-compressor has it.
    fused = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}
    largest = {}
    for name, module in linears(model).items():
        parent, kind = name.rsplit(".", 1)
        key = (parent, fused.get(kind, kind))
        largest[key] = torch.maximum(largest.get(key, torch.zeros((), dtype=module.weight.dtype)), module.weight.detach().abs().max())
    for name, module in linears(model).items():
        args = module.quantization_scheme.weights
        parent, kind = name.rsplit(".", 1)
        groups = module.weight.reshape(module.weight.shape[0], -1, args.group_size)
        extra = {}
        if args.strategy == "tensor_group":
            g = generate_gparam(-largest[parent, fused.get(kind, kind)], largest[parent, fused.get(kind, kind)])
            if power_of_two:
                g = torch.exp2(torch.floor(torch.log2(g)))
            module.weight_global_scale.data.copy_(g)
            extra["global_scale"] = g
            if module.quantization_scheme.input_activations is not None:
                module.input_global_scale.data.copy_(generate_gparam(torch.tensor(-4.0), torch.tensor(5.0)))
        scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), args, **extra)
        module.weight_scale.data.copy_(scale.reshape(module.weight_scale.shape))
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    save_file({k: v.contiguous() for k, v in model.state_dict().items() if k not in tied}, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(folder)
    compressor.update_config(folder)


def decode_compressed(folder, dtype):
    """Weights by name of a folder that compressed-tensors describes: in BF16 as its decompression gives them, in float32 by the same
    functions asked for that type."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    entry = json.loads((folder / "config.json").read_text())["quantization_config"]
    scheme = QuantizationConfig.model_validate(entry).config_groups["group_0"]
    decoder = BaseCompressor.get_value_from_registry(entry["format"])
    stored = load_file(folder / "model.safetensors")
    decoded = {}
    for name in [n[:-len(".weight_packed")] for n in stored if n.endswith(".weight_packed")]:
        parts = {k[len(name) + 1:]: v for k, v in stored.items() if k.startswith(name + ".")}
        value = decoder.decompress(parts, scheme)["weight"]
        if dtype == torch.float32 and "weight_global_scale" in parts:
            packed = parts["weight_packed"]
            unpacked = unpack_fp4_from_uint8(packed, packed.shape[0], 2 * packed.shape[1]).float()
            value = dequantize(x_q=unpacked, scale=parts["weight_scale"].float(), args=scheme.weights, global_scale=parts["weight_global_scale"],
                               dtype=torch.float32)
        decoded[name + ".weight"] = value.to(dtype)  # without a global scale every value is exact in BF16
    return decoded


def rounding_model(folder, decoded):
    """The model of such a folder with its layers as compressed-tensors runs them, inputs rounded, but in float32 and with these weights."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        model(torch.zeros((1, 1), dtype=torch.long))  # decompresses
        for parameter in model.parameters():
            if parameter.dtype == torch.bfloat16:
                parameter.data = parameter.data.float()
    set_weights(model, decoded)
    return model


def make_compressed_tensors(target):
    for tag, preset in (("nvfp4", "NVFP4"), ("nvfp4a16", "NVFP4A16"), ("mxfp4a16", "MXFP4A16"), ("mxfp4", "MXFP4")):
        model = tiny_model()
        folder = target / f"compressed_tensors_{tag}"
        compress(model, preset, folder)
        finish(folder, lambda dtype: decode_compressed(folder, dtype), ["compressed-tensors"], rounds_inputs=tag in ("nvfp4", "mxfp4"))


def decode_modelopt(folder, dtype):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    stored = load_file(folder / "model.safetensors")
    decoded = {}
    for name in [n[:-len("_scale_2")] for n in stored if n.endswith(".weight_scale_2")]:
        codes = stored[name]
        shape = torch.Size((codes.shape[0], 2 * codes.shape[1]))
        decoded[name] = NVFP4QTensor(shape, dtype, codes).dequantize(dtype=dtype, scale=stored[name + "_scale"],
                                                                     double_scale=stored[name + "_scale_2"], block_sizes={-1: 16})
    return decoded


def make_modelopt(target):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    model = tiny_model()
    ids = torch.randint(0, 99, (4, 24), generator=torch.Generator().manual_seed(3))
    model = mtq.quantize(model, mtq.NVFP4_DEFAULT_CFG, forward_loop=lambda m: m(ids))
    folder = target / "modelopt_nvfp4"
    export_hf_checkpoint(model, export_dir=folder)
    finish(folder, lambda dtype: decode_modelopt(folder, dtype), ["nvidia-modelopt"])


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    makers = {"bitsandbytes": make_bitsandbytes, "compressed-tensors": make_compressed_tensors, "modelopt": make_modelopt}
    for maker in sys.argv[2:] or makers:
        makers[maker](folder)
