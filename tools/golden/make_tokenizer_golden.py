"""Writes tests/golden/tokenizers: small tokenizers with the pre-tokenizers of known models, and their ids for odd texts.

Usage: python make_tokenizer_golden.py TEXT_FILE OUTPUT_FOLDER      (needs tokenizers and sentencepiece)
The byte-pair merges are learnt from the text file and from random Unicode text.
"""

import json
import pathlib
import random
import sys

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Metaspace, Sequence, Split

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "peers"))
from tokenizer_peer import CONTRACTIONS, SPACES, random_text  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="isolated", invert=False):
    return Split(Regex(pattern), behavior, invert)


def byte_level(pre_tokenizer, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


def spaced(normalizer, pre_tokenizer, decoder):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    return tokenizer


def steps(name):
    plain = ByteLevel(add_prefix_space=False, use_regex=False)
    llama_decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    if name == "gpt2":
        return byte_level(ByteLevel(add_prefix_space=False))
    if name == "gpt2_prefix":
        return byte_level(ByteLevel(add_prefix_space=True))
    if name == "smollm":
        return byte_level(Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]))
    if name == "llama3":
        return byte_level(Sequence([split(LLAMA3), plain]), ignore_merges=True)
    if name == "qwen2":
        return byte_level(Sequence([split(QWEN2), plain]), normalizers.NFC())
    if name == "gpt4o":
        return byte_level(Sequence([split(GPT4O), plain]), normalizers.NFKC())
    if name == "splits":  # the other behaviours, classes and string patterns
        return byte_level(Sequence([
            Split("--", "removed"), split(r"[^\s]+", "merged_with_previous", True), split(r"\p{Nd}{2,}", "contiguous"),
            split(r"(?<=[\p{P}\p{S}])", "isolated"), split(r"\W\w?+", "merged_with_next"), Digits(), plain]),
            normalizers.NFD())
    if name == "llama2":
        return spaced(normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None,
                      llama_decoder)
    if name == "mistral":
        return spaced(None, Metaspace(replacement="\u2581", prepend_scheme="first", split=False), llama_decoder)
    if name == "metaspace":
        return spaced(normalizers.Sequence([normalizers.Replace(Regex(r" {2,}"), " "), normalizers.NFKD()]),
                      Metaspace(replacement="\u2581", prepend_scheme="always", split=True),
                      decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")]))
    raise KeyError(name)


NAMES = ["gpt2", "gpt2_prefix", "smollm", "llama3", "qwen2", "gpt4o", "splits", "llama2", "mistral", "metaspace"]


def template(tokenizer):
    bos = "<s>"
    return processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B",
                                         special_tokens=[(bos, tokenizer.token_to_id(bos))])


def make(name, lines, folder):
    tokenizer = steps(name)
    has_bytes = name in ("llama2", "mistral", "metaspace")
    special = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)] if has_bytes else []
    trainer = trainers.BpeTrainer(vocab_size=1400 if has_bytes else 1000, special_tokens=special + bytes_, show_progress=False,
                                  limit_alphabet=220 if has_bytes else 256, initial_alphabet=[] if has_bytes else ByteLevel.alphabet(),
                                  max_token_length=12)
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", AddedToken("<mask>", lstrip=True, rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("<right>", rstrip=True, normalized=False), AddedToken("<left>", lstrip=True, normalized=False),
                          AddedToken("solo", single_word=True), AddedToken("Cafe\u0301", normalized=True)])
    if name in ("llama3", "llama2", "mistral"):
        tokenizer.post_processor = template(tokenizer)
        if name == "llama3":
            tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(tokenizer)])
    elif not has_bytes:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    data = json.loads(tokenizer.to_str())
    # The bytes are ordinary tokens in real files.
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] not in bytes_]
    if name == "gpt2":  # the older spelling
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n")

    peer = Tokenizer.from_file(str(path))
    rng = random.Random(f"golden {name}")
    texts = ["", " ", "  ", "\n", "a", "Hello, world! It's 2024.", "Hello\n\n\nworld  \t x", "don't DON'T we'LL", "\u00a0\u2028\u3000x",
             "12345678 \u0661\u0662\u0663 \u00bd\u2167", "e\u0301\u0323 \ufb01 \u212b", "\U0001F469\u200D\U0001F4BB ok", "<s>hi</s>",
             "x <mask> y", "a<left> b<right> c solo solos", "Caf\u00e9 Cafe\u0301", "\U0001E5D0\U000105C0\U00011DE0 new letters",
             "a\x00b\x1fc\x7f", "\ufffd\uffff\ue000", "-- a--b --"]
    texts += [space + "a" + space * 2 for space in SPACES] + CONTRACTIONS
    texts += [random_text(rng) for _ in range(60)]
    size = peer.get_vocab_size()
    lists = [[rng.randrange(size) for _ in range(rng.randint(1, 10))] for _ in range(40)]
    cases = {
        "made_with": f"tokenizers {tokenizers.__version__}",
        "encode": [{"text": t, "ids": peer.encode(t).ids, "plain": peer.encode(t, add_special_tokens=False).ids} for t in texts],
        "decode": [{"ids": i, "text": peer.decode(i, skip_special_tokens=False), "plain": peer.decode(i)} for i in lists],
    }
    rows = [f'"{key}": [\n' + ",\n".join(json.dumps(c) for c in cases[key]) + "\n]" for key in ("encode", "decode")]
    (folder / "cases.json").write_text(f'{{"made_with": "{cases["made_with"]}",\n' + ",\n".join(rows) + "}\n")


def make_sentencepiece(lines, folder):
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line.strip() for line in lines if line.strip()), model_prefix=str(folder / "tokenizer"),
        vocab_size=900, model_type="bpe", byte_fallback=True, normalization_rule_name="identity", character_coverage=0.99,
        remove_extra_whitespaces=False, split_digits=True, minloglevel=2, num_threads=1)
    (folder / "tokenizer.vocab").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": {"content": "<s>", "special": True}, "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True,
        "add_eos_token": False, "added_tokens_decoder": {
            "0": {"content": "<unk>", "special": True}, "1": {"content": "<s>", "special": True},
            "2": {"content": "</s>", "special": True}, "900": {"content": "<pad>", "special": True}}}, indent=1) + "\n")
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    rng = random.Random("golden sentencepiece")
    texts = ["", "a", "Hello, world! It's 2024.", "  two  spaces ", "\u00e9\U0001F469 12"]
    texts += [t.replace("<", "(").replace("\u2581", "_").replace("\x00", "") for t in (random_text(rng) for _ in range(60))]
    rows = [json.dumps({"text": t, "ids": [1] + model.encode(t), "plain": model.encode(t)}) for t in texts]
    (folder / "cases.json").write_text(f'{{"made_with": "sentencepiece {sentencepiece.__version__}",\n"encode": [\n'
                                       + ",\n".join(rows) + "\n]}\n")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = file.read(400000).splitlines(keepends=True)
    rng = random.Random("train")
    lines += [random_text(rng) for _ in range(3000)]
    out = pathlib.Path(sys.argv[2])
    for name in NAMES:
        make(name, lines, out / name)
    make_sentencepiece(lines[:-3000], out / "sentencepiece")


main()
