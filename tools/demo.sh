#!/usr/bin/env bash
# The demonstration behind ./x demo: a real model quantized six ways, each evaluated against the original, and the report.
# Usage: demo.sh HALFBYTE CACHE OUT. CACHE holds smollm2.gguf and lee_background.cor.
set -euo pipefail
tool=$1 cache=$2 out=$3
windows=3
prompt="What is gravity? Answer in one sentence."

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

mkdir -p "$out"
# 300 news articles, one a line: the first 200 to calibrate on, the others to evaluate on.
head -n 200 "$cache/lee_background.cor" >"$out/calibration.txt"
tail -n +201 "$cache/lee_background.cor" >"$out/evaluation.txt"

say "importing SmolLM2-135M-Instruct"
"$tool" import "$cache/smollm2.gguf" -o "$out/bf16" --overwrite
say "calibrating: which channels are large?"
"$tool" calibrate "$out/bf16" --text "$out/calibration.txt" --samples 64 --seq-len 256 -o "$out/stats.safetensors"

quantize() {  # quantize NAME OPTIONS...
  local name=$1
  shift
  say "quantizing: $name"
  "$tool" quantize "$out/bf16" -o "$out/$name" --overwrite "$@"
}
quantize nf4-dq --format nf4 --double-quant
quantize mxfp4-w4a16 --format mxfp4
quantize nvfp4-w4a16 --format nvfp4
quantize nvfp4-w4a4 --format nvfp4 --activations same
quantize nvfp4-arc --format nvfp4 --activations same --method arc --residual percent=10 --stats "$out/stats.safetensors"
quantize nvfp4-best --format nvfp4 --activations same --method best --quality fast --samples 8 --text "$out/calibration.txt"

evaluate() {  # evaluate NAMES... -- OPTIONS...
  local models=()
  while [ "$1" != -- ]; do
    models+=("$out/$1")
    shift
  done
  shift
  "$tool" eval "${models[@]}" --perplexity "$out/evaluation.txt" --windows $windows "$@"
}
say "evaluating the original"
evaluate bf16 -- --json "$out/bf16.json"
# A few at a time, so that their float32 weights fit into the memory of a small machine.
say "evaluating weights in 4 bits"
evaluate nf4-dq mxfp4-w4a16 nvfp4-w4a16 -- --reference "$out/bf16" --json "$out"
say "evaluating weights and activations in 4 bits: to nearest, with residual channels (ARC), and the best of halfbyte without second moments"
evaluate nvfp4-w4a4 nvfp4-arc nvfp4-best -- --reference "$out/bf16" --json "$out"
say "where the error comes from"
"$tool" analyze "$out/bf16" --stats "$out/stats.safetensors" --text "$out/evaluation.txt" --windows 1 --seq-len 256 \
  --methods rtn,arc --residual percent=10 --formats nvfp4,mxfp8 -o "$out/analysis.json"

names=(bf16 nf4-dq mxfp4-w4a16 nvfp4-w4a16 nvfp4-w4a4 nvfp4-arc nvfp4-best)
for name in "${names[@]}"; do
  say "$name: $prompt"
  "$tool" generate "$out/$name" -p "$prompt" -n 48
done

say "result: $windows windows of 2048 tokens of English news"
files=("${names[@]/#/$out/}")
"$tool" report "${files[@]/%/.json}" "$out/analysis.json" "${files[@]}" -o "$out/report.html"
echo
echo "report: $out/report.html"
