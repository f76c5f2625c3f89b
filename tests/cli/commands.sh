#!/usr/bin/env bash
# The subcommands end to end on a tiny model, and what they answer to wrong use. Usage: commands.sh HALFBYTE GOLDEN.
. "$(dirname "$0")/check.sh"
tool=$1

# A tiny random llama with a tokenizer of its own.
model=$work/model
check "import" expect 0 "$tool" import "$2/gguf/smollm2_like.gguf" -o "$model"
for i in $(seq 400); do echo "the quick brown fox $i jumps over the lazy dog"; done >"$work/text"

check "help" expect 0 "$tool" --help
check "version" expect 0 "$tool" --version
for command in analyze bench calibrate convert dequantize eval generate import info inspect plan quantize report tokenize verify; do
  check "$command --help" expect 0 "$tool" $command --help
done
check "quantize has an example" expect 0 "$tool" quantize --help && check "it shows" says "halfbyte quantize smollm2"
check "no command" expect 2 "$tool"
check "unknown command" expect 2 "$tool" frobnicate
refuse "unknown option" "frobnicate" "$tool" info --frobnicate
refuse "no model" "model is required" "$tool" eval
check "info" expect 0 "$tool" info && check "kernels are listed" says "quantize/cpu"
check "forced kernel" expect 0 env HALFBYTE_FORCE=quantize/reference,dequantize/reference "$tool" quantize "$model" -o "$work/forced" --format nvfp4
check "unknown forced kernel" expect 2 env HALFBYTE_FORCE=quantize/magic "$tool" quantize "$model" -o "$work/x" --format nvfp4

for format in nf4 fp4 nvfp4 mxfp4 mxfp8 mxfp8_e5m2 int4 int8; do
  check "quantize $format" expect 0 "$tool" quantize "$model" -o "$work/$format" --format $format
  check "$format says its bits" says "bits/weight"
  check "eval $format" expect 0 "$tool" eval "$work/$format" --perplexity "$work/text" --seq-len 64 --windows 2 --reference "$model" --json "$work/$format.json"
  check "generate $format" expect 0 "$tool" generate "$work/$format" --raw -p "the" -n 5
done
mkdir "$work/results"
check "eval of several" expect 0 "$tool" eval "$work/nf4" "$work/nvfp4" --perplexity "$work/text" --seq-len 64 --windows 2 --reference "$model" --json "$work/results"
for format in nf4 nvfp4; do
  check "$format: as alone" diff <(grep -E 'perplexity"|kl_mean|top1' "$work/$format.json") <(grep -E 'perplexity"|kl_mean|top1' "$work/results/$format.json")
done
refuse "several into a file" "is no folder" "$tool" eval "$work/nf4" "$work/nvfp4" --perplexity "$work/text" --json "$work/text"
check "same bytes from every kernel" cmp "$work/forced/model.safetensors" "$work/nvfp4/model.safetensors"
check "W4A4" expect 0 "$tool" quantize "$model" -o "$work/w4a4" --format nvfp4 --activations same --activation-scope token
check "eval W4A4" expect 0 "$tool" eval "$work/w4a4" --perplexity "$work/text" --seq-len 64 --windows 2 --protocol document
check "W4A8" expect 0 "$tool" quantize "$model" -o "$work/w4a8" --format mxfp4 --activations mxfp8
check "eval W4A8" expect 0 "$tool" eval "$work/w4a8" --perplexity "$work/text" --seq-len 64 --windows 2
check "calibrate" expect 0 "$tool" calibrate "$model" --text "$work/text" -o "$work/stats.safetensors" --samples 8 --seq-len 64
check "few samples: a warning" says "warning"
check "calibrate --hessian" expect 0 "$tool" calibrate "$model" --text "$work/text" -o "$work/hessian.safetensors" --samples 8 --seq-len 64 --hessian
for method in "smoothquant --alpha 0.4" "smoothquant --fold none" "atom --outliers 16" "arc --activation-scope static" "hadamard --hadamard-block 8" "arc --residual percent=10" "arc --order natural --residual fixed=16 --cap-percent 50"; do
  name=${method%% *}
  stats=(--stats "$work/stats.safetensors")
  [ $name = hadamard ] && stats=()
  check "quantize --method $method" expect 0 "$tool" quantize "$model" -o "$work/$name" --overwrite --format nvfp4 --activations same --method $method "${stats[@]}"
  check "eval $method" expect 0 "$tool" eval "$work/$name" --perplexity "$work/text" --seq-len 64 --windows 2
  check "generate $method" expect 0 "$tool" generate "$work/$name" --raw -p "the" -n 5
done
check "static scales: clipped values are counted" expect 0 "$tool" eval "$work/arc" --perplexity "$work/text" --seq-len 64 --windows 1
check "calibrated on the text of the evaluation" says "calibrated on this very text"
check "plan" expect 0 "$tool" plan "$model" --format nvfp4 --activations same --method arc --order natural --residual fixed=16 --cap-percent 50 --stats "$work/stats.safetensors" -o "$work/plan.json"
check "plan prints the inputs" says "mlp_product"
check "quantize --plan" expect 0 "$tool" quantize "$model" --plan "$work/plan.json" -o "$work/planned"
check "the same as without a plan" cmp "$work/planned/model.safetensors" "$work/arc/model.safetensors"
text=(--text "$work/text" --samples 4 --seq-len 48)
for method in "best" "best --quality fast" "best --quality max" "best --residual none --smooth-by absmax" "arc --residual budget=10" "rtn --rounding feedback --match-output 0.5" "rtn --rounding search" "smoothquant --smooth-by rms --rounding search"; do
  check "quantize --method $method" expect 0 "$tool" quantize "$model" -o "$work/best" --overwrite --format nvfp4 --activations same --method $method "${text[@]}"
  check "eval $method" expect 0 "$tool" eval "$work/best" --perplexity "$work/text" --seq-len 64 --windows 1
done
for format in nvfp4 nf4 mxfp4 int4; do
  check "best, $format, weights alone" expect 0 "$tool" quantize "$model" -o "$work/best" --overwrite --format $format --method best "${text[@]}"
  check "verify best, $format" expect 0 "$tool" verify "$work/best"
done
check "plan --method best" expect 0 "$tool" plan "$model" --format nvfp4 --activations same --method best "${text[@]}" -o "$work/best.json"
check "quantize it" expect 0 "$tool" quantize "$model" --plan "$work/best.json" --text "$work/text" -o "$work/best-planned"
check "quantize without a plan" expect 0 "$tool" quantize "$model" -o "$work/best" --overwrite --format nvfp4 --activations same --method best "${text[@]}" --threads 1
check "the same bytes" cmp "$work/best/model.safetensors" "$work/best-planned/model.safetensors"
# Readers of one input in other formats: no residual channels there, and the plan's file does the same.
for format in nf4 fp4 int8 int4 mxfp8 bf16; do
  mixed=(--format nvfp4 --activations same --method best --residual budget=20 --layer-format q_proj=$format "${text[@]}")
  check "best, q_proj $format" expect 0 "$tool" quantize "$model" -o "$work/best" --overwrite "${mixed[@]}"
  check "verify" expect 0 "$tool" verify "$work/best"
  check "eval" expect 0 "$tool" eval "$work/best" --perplexity "$work/text" --seq-len 64 --windows 1
  check "plan it" expect 0 "$tool" plan "$model" "${mixed[@]}" -o "$work/mixed.json"
  check "quantize the plan" expect 0 "$tool" quantize "$model" --plan "$work/mixed.json" --text "$work/text" -o "$work/best-planned" --overwrite
  check "the same bytes" cmp "$work/best/model.safetensors" "$work/best-planned/model.safetensors"
done
cp -r "$2/models/llama3" "$work/llama3" && cp "$model"/tokenizer* "$work/llama3"
check "halfbyte-arc with scales found at run time" expect 0 "$tool" quantize "$work/llama3" -o "$work/arc-export" --format nvfp4 --activations same --method best --quality fast --residual budget=20 --keep lm_head,mlp "${text[@]}" --export halfbyte-arc
refuse "plan: outliers with feedback" "outlier channels" "$tool" plan "$model" -o "$work/x.json" --format int4 --block-size 32 --activations same --method atom --outliers 16 --stats "$work/stats.safetensors" --rounding feedback "${text[@]}"
refuse "a negative seed" "seed" "$tool" plan "$model" -o "$work/x.json" --format nvfp4 --rounding feedback "${text[@]}" --seed -1
refuse "a plan with error feedback, without its text" "other calibration text" "$tool" quantize "$model" --plan "$work/best.json" -o "$work/x"
refuse "feedback without text" "give --text" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --rounding feedback
refuse "text for nothing" "--text does nothing" "$tool" quantize "$model" -o "$work/x" --format nvfp4 "${text[@]}"
refuse "a budget with a rest" "budget=5x" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --activations same --method best --residual budget=5x "${text[@]}"
refuse "damping that is no number" "damping is nan" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --rounding feedback --damping nan "${text[@]}"
refuse "a budget for analyze" "for quantize and plan" "$tool" analyze "$model" --stats "$work/stats.safetensors" --text "$work/text" --windows 1 --seq-len 64 --methods arc --residual budget=5 -o "$work/x.json"
refuse "a bad budget" "budget" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --activations same --method best --residual budget=x "${text[@]}"
refuse "alpha without smoothing" "--alpha does nothing with --smooth-by none, which best takes for weights alone" "$tool" quantize "$model" -o "$work/x" --format nf4 --method best --alpha 0.4 "${text[@]}"
refuse "--four-six and a search" "tries both" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --four-six --rounding search "${text[@]}"
for idle in "--alpha 0.4" "--outliers 3" "--residual tau" "--hadamard-block 8" "--stats $work/stats.safetensors" "--analysis $work/plan.json" "--weights-only" "--activation-scope token" "--samples 4" "--seed 1" "--mx-scale ceil"; do
  refuse "idle: $idle" "${idle%% *}" "$tool" quantize "$model" -o "$work/x" --format nvfp4 $idle
done
sed 's/"residual": 16/"residul": 16/' "$work/plan.json" >"$work/typo.json"
refuse "a misspelled member" "residul" "$tool" quantize "$model" --plan "$work/typo.json" -o "$work/x"
refuse "an existing target" "not empty" "$tool" quantize "$model" -o "$work/nf4" --format nf4 --export bitsandbytes
refuse "resume and export" "convert" "$tool" quantize "$model" -o "$work/x" --format nf4 --export bitsandbytes --resume
refuse "control characters" "a?b" "$tool" quantize "$model" -o "$work/x" --format $'a\nb'
refuse "plan and options" "format" "$tool" quantize "$model" --plan "$work/plan.json" -o "$work/x" --format nvfp4
sed 's/"model": "./"model": "x/' "$work/plan.json" >"$work/other.json"
refuse "a plan of another model" "another model" "$tool" quantize "$model" --plan "$work/other.json" -o "$work/x"
sed 's/"ranking": \[[0-9]*,/"ranking": [/' "$work/plan.json" >"$work/short.json"
refuse "a damaged plan" "ranking" "$tool" quantize "$model" --plan "$work/short.json" -o "$work/x"
check "formats by layer" expect 0 "$tool" quantize "$model" -o "$work/mixed" --format nvfp4 --activations same --layer-format 'layers.0=mxfp8,*.v_proj=bf16'
check "both are listed" says "mxfp8_e4m3" && check "and bf16" says "format bf16"
check "eval mixed" expect 0 "$tool" eval "$work/mixed" --perplexity "$work/text" --seq-len 64 --windows 1 --reference "$model"
refuse "a layer that is not there" "matches no linear" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --layer-format layers.99=mxfp8
refuse "no format" "PATTERN=FORMAT" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --layer-format mxfp8
check "analyze" expect 0 "$tool" analyze "$model" --stats "$work/stats.safetensors" --text "$work/text" --windows 2 --seq-len 64 --formats nvfp4,mxfp8,bf16 -o "$work/analysis.json"
check "a budget of bits" expect 0 "$tool" quantize "$model" -o "$work/budget" --format nvfp4 --activations same --bits-budget 7 --analysis "$work/analysis.json"
check "it mixes formats" says "mxfp8_e4m3"
check "eval of it" expect 0 "$tool" eval "$work/budget" --perplexity "$work/text" --seq-len 64 --windows 2 --json "$work/budget.json"
check "it is kept" awk -F '[:,]' '/bits_per_weight/ { exit !($2 > 5 && $2 <= 7.01) }' "$work/budget.json"
refuse "residual channels beyond the budget" "counts too" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --activations same --bits-budget 7 --analysis "$work/analysis.json" --method arc --residual percent=30 --cap-percent 30 --stats "$work/stats.safetensors"
refuse "too small a budget" "smallest formats take" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --bits-budget 3 --analysis "$work/analysis.json"
refuse "a budget without errors" "analyze" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --bits-budget 7
if [ -n "${HALFBYTE_SMOLLM2:-}" ]; then  # the tiny model has no rows of whole blocks
  sed 's/.*/& and this is a longer line of text for the model/' "$work/text" >"$work/prose"
  check "calibrate a real model" expect 0 "$tool" calibrate "$HALFBYTE_SMOLLM2" --text "$work/prose" -o "$work/real.safetensors" --samples 2 --seq-len 32
  for to in compressed-tensors modelopt; do
    check "quantize --export $to" expect 0 "$tool" quantize "$HALFBYTE_SMOLLM2" -o "$work/export-$to" --format nvfp4 --activations same --activation-scope static --method smoothquant --stats "$work/real.safetensors" --export $to
    check "inspect it" expect 0 "$tool" inspect "$work/export-$to"
  done
fi
check "nothing else is left" [ -z "$(find "$work" -name '*.halfbyte*')" ]
check "quantize --export bitsandbytes" expect 0 "$tool" quantize "$model" -o "$work/export-bnb" --format nf4 --double-quant --export bitsandbytes
check "verify the export" expect 0 "$tool" verify "$work/export-bnb" && check "it has a manifest" says "every byte"
refuse "an unknown layout" "bitsandbytes, compressed-tensors" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --export onnx
refuse "a layout that cannot hold it" "bitsandbytes" "$tool" quantize "$model" -o "$work/x" --format nvfp4 --export bitsandbytes
check "verify" expect 0 "$tool" verify "$work/mixed"
printf x >>"$work/mixed/tokenizer.json"
refuse "verify finds a change" "tokenizer.json" "$tool" verify "$work/mixed"
check "verify without a manifest" expect 0 "$tool" verify "$model" && check "says so" says "no manifest"
check "inspect a checkpoint" expect 0 "$tool" inspect "$work/nvfp4" && check "its bits" says "4.5"
check "inspect a file" expect 0 "$tool" inspect "$model/model.safetensors" --summary
check "report" expect 0 "$tool" report "$work"/nf4.json "$work"/nvfp4.json -o "$work/report.md"
check "report is written" grep -q "nvfp4" "$work/report.md"
check "a line a model" test "$(grep -c . "$work/out")" = 3

# Wrong use: exit code 2, one sentence, nothing left behind.
refuse "quantizing twice" "quantized already" "$tool" quantize "$work/nf4" -o "$work/no" --format nvfp4
refuse "format unknown" "nvfp4" "$tool" quantize "$model" -o "$work/no" --format nvfp5
refuse "NF4 activations" "weights only" "$tool" quantize "$model" -o "$work/no" --format nf4 --activations same
refuse "ARC without statistics" "stats" "$tool" quantize "$model" -o "$work/no" --format nvfp4 --activations same --method arc
refuse "calibrate on nothing" "nowhere" "$tool" calibrate "$model" --text "$work/nowhere" -o "$work/no"
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
cp -r "$model" "$work/self"
refuse "output is the input" "destroy" "$tool" quantize "$work/self" -o "$work/self" --overwrite --format nf4
refuse "result over the text" "destroy" "$tool" eval "$model" --perplexity "$work/text" --seq-len 64 --windows 1 --json "$work/text"
refuse "result over the config" "destroy" "$tool" eval "$model" --perplexity "$work/text" --seq-len 64 --windows 1 --json "$model/config.json"
refuse "result in no folder" "nowhere" "$tool" eval "$model" --perplexity "$work/text" --json "$work/nowhere/e.json"
mkdir "$work/other" && cp "$model/config.json" "$work/other" && echo precious >"$work/other/notes.pdf"
refuse "other files are kept" "notes.pdf" "$tool" quantize "$model" -o "$work/other" --overwrite --format nf4
refuse "rule unknown" "banana" "$tool" quantize "$model" -o "$work/no" --format nf4 --global-scale banana
refuse "bf16" "change nothing" "$tool" quantize "$model" -o "$work/no" --format bf16
refuse "too many tokens" "max-tokens" "$tool" generate "$model" --raw -p the -n 9223372036854775807
refuse "bench of bf16" "bf16" "$tool" bench dequant --format bf16
cp -r "$model" "$work/short"
sed -i 's/"num_hidden_layers": *3/"num_hidden_layers": 4/' "$work/short/config.json"
refuse "a layer is missing" "layers.3" "$tool" quantize "$work/short" -o "$work/no" --format nf4
check "full disk" expect 2 bash -c "'$tool' inspect '$model' >/dev/full"
check "nothing left behind" test ! -e "$work/no"
check "no temporary files" test -z "$(find "$work" -name '*.part')"

# An interrupted run leaves nothing under the output's name.
"$tool" quantize "$model" -o "$work/interrupted" --format nf4 >/dev/null 2>&1 &
kill -INT $! 2>/dev/null
wait $! 2>/dev/null
check "interrupted: all or nothing" test ! -e "$work/interrupted" -o -f "$work/interrupted/config.json"

finish
