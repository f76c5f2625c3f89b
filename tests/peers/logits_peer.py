"""Compares logits written by halfbyte with those of transformers (float32, eager attention) for the same model directory and tokens.

  logits_peer.py MODEL_DIR LOGITS.safetensors [--tolerance 2e-3] [--tokens N] [--threads N]

LOGITS.safetensors holds input_ids (I32 [T]) and logits (F32 [T, vocab]); row t predicts token t + 1. Prints the largest absolute difference.
Exit code: 0 within the tolerance, 1 above it (or a logit that is not finite), 2 input that cannot be compared, 77 torch or transformers missing.
"""

import argparse
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import torch
    import transformers
    from safetensors import SafetensorError, safe_open
except ImportError as error:
    print(f"logits_peer: skipped, {error}; install torch, transformers and safetensors to run it")
    sys.exit(77)


def refuse(message):
    print(f"logits_peer: {message}", file=sys.stderr)
    sys.exit(2)


def read_logits(path):
    """input_ids [T] and logits [T, vocab] of the file, checked."""
    try:
        with safe_open(path, framework="pt") as f:
            missing = {"input_ids", "logits"} - set(f.keys())
            if missing:
                refuse(f"{path}: no tensor named {' and '.join(sorted(missing))}, expected input_ids [T] and logits [T, vocab]")
            ids, logits = f.get_tensor("input_ids"), f.get_tensor("logits")
    except (OSError, SafetensorError) as error:
        refuse(f"{path}: {error}")
    if ids.dtype not in (torch.int32, torch.int64) or logits.dtype != torch.float32:
        refuse(f"{path}: input_ids is {ids.dtype} and logits {logits.dtype}, expected int32 and float32")
    if ids.dim() != 1 or logits.dim() != 2 or ids.numel() == 0 or logits.shape[0] != ids.shape[0]:
        refuse(f"{path}: input_ids {list(ids.shape)} and logits {list(logits.shape)}, expected [T] and [T, vocab]")
    return ids.long(), logits


def file_has_head(model_dir):
    """Whether the checkpoint stores lm_head.weight, which then wins over tied embeddings."""
    for name in os.listdir(model_dir):
        if name.endswith(".safetensors") and name.startswith("model"):
            with safe_open(os.path.join(model_dir, name), framework="pt") as f:
                if "lm_head.weight" in f.keys():
                    return True
    return False


def peer_logits(model_dir, ids):
    """Logits [T, vocab] of transformers."""
    config = transformers.AutoConfig.from_pretrained(model_dir, local_files_only=True)
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        refuse(f"input_ids reach from {ids.min()} to {ids.max()}, expected 0 to {config.vocab_size - 1} for {model_dir}")
    if config.tie_word_embeddings and file_has_head(model_dir):
        config.tie_word_embeddings = False
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, config=config, dtype=torch.float32,
                                                              attn_implementation="eager", local_files_only=True).eval()
    with torch.no_grad():
        return model(ids[None], use_cache=False).logits[0].float()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir")
    parser.add_argument("logits")
    parser.add_argument("--tolerance", type=float, default=2e-3, help="largest absolute difference allowed (default %(default)s)")
    parser.add_argument("--tokens", type=int, help="compare the first N tokens only")
    parser.add_argument("--threads", type=int, default=0, help="torch threads (default: torch's own choice)")
    args = parser.parse_args()
    if args.threads > 0:
        torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if not os.path.isfile(os.path.join(args.model_dir, "config.json")):
        refuse(f"{args.model_dir}: no config.json, expected a Hugging Face model directory")

    ids, ours = read_logits(args.logits)
    if args.tokens is not None:
        if not 1 <= args.tokens <= len(ids):
            refuse(f"--tokens {args.tokens}, expected 1 to {len(ids)}, the number of tokens in {args.logits}")
        ids, ours = ids[:args.tokens], ours[:args.tokens]
    theirs = peer_logits(args.model_dir, ids)
    if ours.shape != theirs.shape:
        refuse(f"{args.logits}: logits {list(ours.shape)}, expected {list(theirs.shape)} for {args.model_dir}")

    difference = (ours - theirs).abs()
    finite = bool(torch.isfinite(ours).all())
    worst = difference.max().item() if finite else float("nan")
    position, column = divmod(int(difference.argmax()), ours.shape[1])
    same_top = (ours.argmax(-1) == theirs.argmax(-1)).float().mean().item()
    print(f"max abs difference {worst:.3e} (tolerance {args.tolerance:.1e}) at position {position}, column {column}; "
          f"mean {difference.mean():.1e}; same top token {100 * same_top:.2f} %; {len(ids)} tokens, transformers {transformers.__version__}")
    sys.exit(0 if finite and worst <= args.tolerance else 1)


if __name__ == "__main__":
    main()
