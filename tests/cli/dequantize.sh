#!/usr/bin/env bash
# halfbyte dequantize and bench on files that it makes itself. Usage: dequantize.sh HALFBYTE GOLDEN.
. "$(dirname "$0")/check.sh"
tool=$1 golden=$2
size_is() { [ "$(stat -c %s "$1")" = "$2" ]; }

file=$work/m.bin
check "make" expect 0 "$tool" dequantize --make "$file" --rows 100 --columns 333 --seed 3
check "size" size_is "$file" $((20 + 16650 + 521 + 2 * 3 + 512 + 4))
for dtype in bf16 fp16 fp32; do
  check "decode to $dtype" expect 0 "$tool" dequantize "$file" --device cpu --dtype $dtype -o "$work/$dtype" --log "$work/log" --peer-ms 1
done
check "bf16 size" size_is "$work/bf16" $((33300 * 2))
check "fp32 size" size_is "$work/fp32" $((33300 * 4))
check "the log has a time" grep -q time_ms "$work/log"
check "the log has a speed-up" grep -q speed_up "$work/log"
check "compare" expect 0 "$tool" dequantize "$file" --device cpu --compare "$work/bf16"
check "all identical" says "33300 of 33300 (100.0000 %)"
check "make low first" expect 0 "$tool" dequantize --make "$work/low.bin" --rows 100 --columns 333 --seed 3 --low-nibble-first
check "low first comes out alike" expect 0 "$tool" dequantize "$work/low.bin" --device cpu --low-nibble-first --compare "$work/bf16"
check "identical too" says "100.0000 %"
check "read the wrong way round" expect 0 "$tool" dequantize "$work/low.bin" --device cpu --compare "$work/bf16"
check "and that shows" says "maximum difference"
check "not identical" bash -c "! grep -q '(100.0000 %)' '$work/out'"

weights=$golden/bnb_linear4bit_nf4_double.safetensors
if [ -f "$weights" ]; then
  check "a bitsandbytes file" expect 0 "$tool" dequantize "$weights" --device cpu -o "$work/bnb"
fi

head -c 1000 "$file" >"$work/cut.bin"
check "truncated" expect 2 "$tool" dequantize "$work/cut.bin" --device cpu
check "in a sentence" one_sentence
check "no file" expect 2 "$tool" dequantize "$work/absent.bin"
check "no input" expect 2 "$tool" dequantize
check "reference of another size" expect 2 "$tool" dequantize "$file" --device cpu --compare "$work/fp32"
check "in a sentence" one_sentence
check "bad group" expect 2 "$tool" dequantize "$file" --group 100
check "make without a size" expect 2 "$tool" dequantize --make "$work/x.bin"
if "$tool" dequantize "$file" --device cuda >"$work/out" 2>"$work/err"; then
  check "cuda agrees" expect 0 "$tool" dequantize "$file" --device cuda --compare "$work/bf16"
  check "bit for bit" says "100.0000 %"
else
  echo "SKIPPED: decoding on CUDA: $(cat "$work/err")"
  check "no device is said in a sentence" one_sentence
fi
check "bench" expect 0 "$tool" bench dequant --device cpu --rows 64 --columns 256 --repeats 3
check "bench names every format" says mxfp8_e5m2
check "bench of nothing" expect 2 "$tool" bench
finish
