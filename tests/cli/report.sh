#!/usr/bin/env bash
# analyze and report end to end on a tiny model: mixed inputs, both outputs, wrong use. Usage: report.sh HALFBYTE GOLDEN.
. "$(dirname "$0")/check.sh"
tool=$1

model=$work/model
check "import" expect 0 "$tool" import "$2/gguf/smollm2_like.gguf" -o "$model"
for i in $(seq 400); do echo "the quick brown fox $i jumps over the lazy dog"; done >"$work/text"
for i in $(seq 300); do echo "pack my box with $i dozen liquor jugs"; done >"$work/other"
check "calibrate" expect 0 "$tool" calibrate "$model" --text "$work/text" -o "$work/stats" --samples 8 --seq-len 64
check "W4A4" expect 0 "$tool" quantize "$model" -o "$work/w4a4" --format nvfp4 --activations same
check "ARC" expect 0 "$tool" quantize "$model" -o "$work/arc" --format nvfp4 --activations same --method arc --residual percent=20 --cap-percent 30 --stats "$work/stats"
for name in model w4a4 arc; do
  check "eval $name" expect 0 "$tool" eval "$work/$name" --perplexity "$work/other" --seq-len 64 --windows 2 --reference "$model" --json "$work/$name.json"
done

analyze=("$tool" analyze "$model" --stats "$work/stats" --text "$work/other" "$work/text" --windows 3 --seq-len 64 --cap-percent 30)
check "analyze" expect 0 "${analyze[@]}" -o "$work/analysis.json"
check "a table of methods" says "smoothquant"
check "a text of calibration is named" says "made from $work/text"
check "findings in words" says "error bound of residual channels"
check "one thread, the same bytes" expect 0 "${analyze[@]}" --threads 1 -o "$work/again.json"
check "compared" cmp "$work/analysis.json" "$work/again.json"
check "other methods and formats" expect 0 "${analyze[@]}" --methods rtn --formats int4,int8,nf4 --format mxfp4 --keep none -o "$work/mx.json"
check "one method" expect 0 "${analyze[@]}" --methods hadamard --formats bf16 -o "$work/one.json"

inputs=("$work"/{model,w4a4,arc}.json "$work/analysis.json" "$work"/{model,w4a4,arc})
check "report of everything" expect 0 "$tool" report "${inputs[@]}" -o "$work/report.html"
check "a line a model" test "$(grep -c . "$work/out")" = 4
for section in results perplexity findings residuals errors histograms bound bytes times options reproduce; do
  check "section $section" grep -q "<section id=\"$section\"" "$work/report.html"
done
check "checksums" grep -q "$(sha256sum "$work/arc/config.json" | cut -d' ' -f1)" "$work/report.html"
check "the command of quantize" grep -q -- "--residual percent=20" "$work/report.html"
check "again" expect 0 "$tool" report "${inputs[@]}" -o "$work/report2.html"
check "the same bytes" cmp "$work/report.html" "$work/report2.html"
check "Markdown" expect 0 "$tool" report "${inputs[@]}" -o "$work/report.md"
check "its findings" grep -q "## Findings" "$work/report.md"
check "two analyses, no evaluation" expect 0 "$tool" report "$work/analysis.json" "$work/mx.json" -o "$work/two.html"
check "no results" bash -c "! grep -q 'id=\"results\"' '$work/two.html'"

refuse "no statistics" "nowhere" "$tool" analyze "$model" --stats "$work/nowhere" --text "$work/text" -o "$work/no"
refuse "no text" "nowhere" "$tool" analyze "$model" --stats "$work/stats" --text "$work/nowhere" -o "$work/no"
refuse "a short text" "seq-len" "$tool" analyze "$model" --stats "$work/stats" --text "$work/text" --seq-len 1000000 -o "$work/no"
refuse "a quantized model" "quantized" "$tool" analyze "$work/arc" --stats "$work/stats" --text "$work/text" -o "$work/no"
refuse "an unknown method" "magic" "${analyze[@]}" --methods magic -o "$work/no"
refuse "a method twice" "twice" "${analyze[@]}" --methods rtn,rtn -o "$work/no"
refuse "a format twice" "twice" "${analyze[@]}" --formats mxfp8,mxfp8_e4m3 -o "$work/no"
refuse "an unknown format" "nvfp5" "${analyze[@]}" --formats nvfp5 -o "$work/no"
refuse "methods in a format of weights" "nf4" "${analyze[@]}" --format nf4 -o "$work/no"
refuse "an analysis over its text" "destroy" "${analyze[@]}" -o "$work/text"
refuse "statistics of another model" "another model" bash -c "sed 's/model.layers.0.mlp_product/model.layers.9.mlp_product/g' '$work/stats' >'$work/wrong'; exec '$tool' analyze '$model' --stats '$work/wrong' --text '$work/text' --seq-len 64 -o '$work/no'"

refuse "a report in no folder" "nowhere" "$tool" report "${inputs[@]}" -o "$work/nowhere/report.html"
refuse "a report in another format" ".pdf" "$tool" report "${inputs[@]}" -o "$work/report.pdf"
refuse "a folder that is no model" "config.json" "$tool" report "$work" -o "$work/no.html"
refuse "a file that is none of ours" "model" "$tool" report "$model/config.json" -o "$work/no.html"
refuse "no JSON" "JSON" "$tool" report "$work/text" -o "$work/no.html"
sed 's/"channels": 72/"channels": "many"/' "$work/analysis.json" >"$work/bad.json"
refuse "a damaged analysis" "channels" "$tool" report "$work/bad.json" -o "$work/no.html"
head -c 5000 "$work/analysis.json" >"$work/bad.json"
refuse "half an analysis" "JSON" "$tool" report "$work/bad.json" -o "$work/no.html"
sed 's/"run": {/"run": 5, "was": {/' "$work/arc/halfbyte_manifest.json" >"$work/m" && cp "$work/m" "$work/arc/halfbyte_manifest.json"
refuse "a damaged manifest" "run" "$tool" report "$work/arc" -o "$work/no.html"
check "nothing left behind" test ! -e "$work/no" -a ! -e "$work/no.html"

finish
