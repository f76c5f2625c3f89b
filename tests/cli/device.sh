#!/usr/bin/env bash
# `--device cuda` on a tiny model: the CPU's figures and words where there is a device, else one sentence and exit code 2.
# Usage: device.sh HALFBYTE GOLDEN.
. "$(dirname "$0")/check.sh"
tool=$1

model=$work/model
check "import" expect 0 "$tool" import "$2/gguf/smollm2_like.gguf" -o "$model"
for i in $(seq 100); do echo "the quick brown fox $i jumps over the lazy dog"; done >"$work/text"
evaluate=("$tool" eval "$model" --perplexity "$work/text" --seq-len 64 --windows 2)
generate=("$tool" generate "$model" --raw -p "the quick" -n 12)

if "$tool" info | grep -q "capability"; then
  for arithmetic in f32 f16; do
    check "eval $arithmetic" expect 0 "${evaluate[@]}" --device cuda --arithmetic $arithmetic --json "$work/$arithmetic.json"
  done
  check "eval on the CPU" expect 0 "${evaluate[@]}" --json "$work/cpu.json"
  for arithmetic in f32 f16; do
    check "$arithmetic: the CPU's perplexity" awk -F'[:,]' '/"perplexity"/ { p[NR] = $2; n++; last = $2 } n == 1 { first = last }
      END { d = first - last; exit !(n == 2 && d * d < 1e-6 * first * first) }' "$work/cpu.json" "$work/$arithmetic.json"
  done
  check "words" diff <("${generate[@]}" 2>/dev/null) <("${generate[@]}" --device cuda --arithmetic f32 2>/dev/null)
else
  refuse "eval without a device" "the model on CUDA: " "${evaluate[@]}" --device cuda
  refuse "generate without a device" "the model on CUDA: " "${generate[@]}" --device cuda
fi
refuse "an unknown device" "cpu,cuda" "$tool" eval "$model" --perplexity "$work/text" --device tpu
refuse "an unknown arithmetic" "f32,f16" "$tool" eval "$model" --perplexity "$work/text" --arithmetic f64

finish
