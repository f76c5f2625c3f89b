#!/usr/bin/env bash
# The demonstration behind ./x demo: a real model quantized four ways, each evaluated against the original.
# Usage: demo.sh HALFBYTE CACHE OUT. CACHE holds smollm2.gguf and lee_background.cor.
set -euo pipefail
tool=$1 cache=$2 out=$3
text=$cache/lee_background.cor
windows=3
prompt="What is gravity? Answer in one sentence."

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

mkdir -p "$out"
say "importing SmolLM2-135M-Instruct"
"$tool" import "$cache/smollm2.gguf" -o "$out/bf16" --overwrite

quantize() {  # quantize NAME OPTIONS...
  local name=$1
  shift
  say "quantizing: $name"
  "$tool" quantize "$out/bf16" -o "$out/$name" --overwrite "$@"
}
quantize nf4-dq --format nf4 --double-quant
quantize nvfp4-w4a16 --format nvfp4
quantize nvfp4-w4a4 --format nvfp4 --activations same
quantize mxfp4-w4a16 --format mxfp4

names=(bf16 nf4-dq nvfp4-w4a16 nvfp4-w4a4 mxfp4-w4a16)
files=()
for name in "${names[@]}"; do
  say "evaluating: $name"
  reference=(--reference "$out/bf16")
  [ "$name" = bf16 ] && reference=()
  "$tool" eval "$out/$name" --perplexity "$text" --windows $windows "${reference[@]}" --json "$out/$name.json"
  files+=("$out/$name.json")
done
for name in "${names[@]}"; do
  say "$name: $prompt"
  "$tool" generate "$out/$name" -p "$prompt" -n 48
done

say "result: $windows windows of 2048 tokens of English news"
"$tool" report "${files[@]}" "${names[@]/#/$out/}" -o "$out/report.html"
echo
echo "report: $out/report.html"
