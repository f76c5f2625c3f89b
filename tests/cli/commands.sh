#!/usr/bin/env bash
# The subcommands end to end on a tiny model, and what they answer to wrong use. Usage: commands.sh HALFBYTE GOLDEN.
set -u
tool=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 passed=0

check() {  # check NAME CONDITION...
  local name=$1
  shift
  if "$@"; then passed=$((passed + 1)); else
    echo "FAILED: $name"
    failed=$((failed + 1))
  fi
}
# expect CODE COMMAND...: runs it with output in $work/out and $work/err
expect() {
  local want=$1
  shift
  "$@" >"$work/out" 2>"$work/err" </dev/null
  local code=$?
  [ $code = "$want" ] && return 0
  echo "exit code $code, expected $want: $*"
  head -3 "$work/err"
  return 1
}
says() { grep -q -- "$1" "$work/out" "$work/err"; }
one_sentence() { [ "$(grep -c . "$work/err")" = 1 ]; }

# A tiny random llama with a tokenizer of its own.
model=$work/model
check "import" expect 0 "$tool" import "$2/gguf/smollm2_like.gguf" -o "$model"
for i in $(seq 400); do echo "the quick brown fox $i jumps over the lazy dog"; done >"$work/text"

check "help" expect 0 "$tool" --help
check "version" expect 0 "$tool" --version
for command in info import tokenize eval generate inspect quantize report; do
  check "$command --help" expect 0 "$tool" $command --help
done
check "quantize has an example" expect 0 "$tool" quantize --help && check "it shows" says "halfbyte quantize smollm2"
check "no command" expect 2 "$tool"
check "unknown command" expect 2 "$tool" frobnicate
check "unknown option" expect 2 "$tool" eval "$model" --frobnicate
check "info" expect 0 "$tool" info && check "kernels are listed" says "quantize/cpu"
check "forced kernel" expect 0 env HALFBYTE_FORCE=quantize/reference,dequantize/reference "$tool" quantize "$model" -o "$work/forced" --format nvfp4
check "unknown forced kernel" expect 2 env HALFBYTE_FORCE=quantize/magic "$tool" quantize "$model" -o "$work/x" --format nvfp4

for format in nf4 fp4 nvfp4 mxfp4 mxfp8 mxfp8_e5m2 int4 int8; do
  check "quantize $format" expect 0 "$tool" quantize "$model" -o "$work/$format" --format $format
  check "$format says its bits" says "bits/weight"
  check "eval $format" expect 0 "$tool" eval "$work/$format" --perplexity "$work/text" --seq-len 64 --windows 2 --reference "$model" --json "$work/$format.json"
  check "generate $format" expect 0 "$tool" generate "$work/$format" --raw -p "the" -n 5
done
check "same bytes from every kernel" cmp "$work/forced/model.safetensors" "$work/nvfp4/model.safetensors"
check "W4A4" expect 0 "$tool" quantize "$model" -o "$work/w4a4" --format nvfp4 --activations same --activation-scope token
check "eval W4A4" expect 0 "$tool" eval "$work/w4a4" --perplexity "$work/text" --seq-len 64 --windows 2 --protocol document
check "W4A8" expect 0 "$tool" quantize "$model" -o "$work/w4a8" --format mxfp4 --activations mxfp8
check "eval W4A8" expect 0 "$tool" eval "$work/w4a8" --perplexity "$work/text" --seq-len 64 --windows 2
check "inspect a checkpoint" expect 0 "$tool" inspect "$work/nvfp4" && check "its bits" says "4.5"
check "inspect a file" expect 0 "$tool" inspect "$model/model.safetensors" --summary
check "report" expect 0 "$tool" report "$work"/nf4.json "$work"/nvfp4.json -o "$work/report.md"
check "report is written" grep -q "nvfp4" "$work/report.md"
check "a line a model" test "$(grep -c . "$work/out")" = 3

# Wrong use: exit code 2, one sentence, nothing left behind.
refuse() {  # refuse NAME PATTERN COMMAND...
  local name=$1 pattern=$2
  shift 2
  check "$name" expect 2 "$@"
  check "$name: says why ($pattern)" says "$pattern"
  check "$name: one sentence" one_sentence
}
refuse "quantizing twice" "quantized already" "$tool" quantize "$work/nf4" -o "$work/no" --format nvfp4
refuse "format unknown" "nvfp4" "$tool" quantize "$model" -o "$work/no" --format nvfp5
refuse "NF4 activations" "weights only" "$tool" quantize "$model" -o "$work/no" --format nf4 --activations same
refuse "block size" "48" "$tool" quantize "$model" -o "$work/no" --format nf4 --block-size 48
refuse "keep matches nothing" "nonsense" "$tool" quantize "$model" -o "$work/no" --format nf4 --keep nonsense
refuse "output exists" "nf4" "$tool" quantize "$model" -o "$work/nf4" --format nf4
refuse "no such model" "nowhere" "$tool" quantize "$work/nowhere" -o "$work/no" --format nf4
refuse "no such text" "nowhere" "$tool" eval "$model" --perplexity "$work/nowhere"
refuse "text too short" "too few" "$tool" eval "$model" --perplexity "$work/text" --seq-len 1000000
refuse "protocol unknown" "rolling" "$tool" eval "$model" --perplexity "$work/text" --protocol rolling
cp -r "$model" "$work/plain"
rm -f "$work/plain/tokenizer_config.json"
refuse "no chat template" "chat template" "$tool" generate "$work/plain" -p hello
refuse "empty prompt" "empty" "$tool" generate "$model" --raw -p ""
refuse "report of another file" "model" "$tool" report "$model/config.json"
refuse "inspect nothing" "no such file" "$tool" inspect "$work/nowhere"
printf '\377\376 not text' >"$work/binary"
refuse "text is not UTF-8" "UTF-8" "$tool" eval "$model" --perplexity "$work/binary"
check "nothing left behind" test ! -e "$work/no"
check "no temporary files" test -z "$(find "$work" -name '*.part')"

# An interrupted run leaves nothing under the output's name.
"$tool" quantize "$model" -o "$work/interrupted" --format nf4 >/dev/null 2>&1 &
kill -INT $! 2>/dev/null
wait $! 2>/dev/null
check "interrupted: all or nothing" test ! -e "$work/interrupted" -o -f "$work/interrupted/config.json"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
