#!/usr/bin/env bash
# quantize --resume killed at random moments ends in the bytes of an undisturbed run; verify finds random changes of one byte.
# On the real model that HALFBYTE_SMOLLM2 names, where a run lasts long enough to be killed; skipped without it.
# Usage: resume.sh HALFBYTE.
. "$(dirname "$0")/check.sh"
tool=$1
[ -n "${HALFBYTE_SMOLLM2:-}" ] || { echo "needs the environment variable HALFBYTE_SMOLLM2"; exit 77; }
RANDOM=20261130
quantize=("$tool" quantize "$HALFBYTE_SMOLLM2" --format nvfp4 --activations same --method hadamard --threads 1)

start=$(date +%s%N)
check "undisturbed" expect 0 "${quantize[@]}" -o "$work/whole"
took=$((($(date +%s%N) - start) / 1000))  # microseconds
interrupted=0 same=0
for i in $(seq 20); do
  # Killed twice at random moments, then run to its end.
  for kill in 1 2; do
    "${quantize[@]}" -o "$work/resumed" --resume >/dev/null 2>&1 &
    pid=$!
    sleep "$(awk "BEGIN { print $took * $RANDOM / 32768 / 1000000 }")"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ -d "$work/resumed" ] || interrupted=$((interrupted + 1))
  done
  [ -d "$work/resumed" ] || expect 0 "${quantize[@]}" -o "$work/resumed" --resume
  diff -r "$work/whole" "$work/resumed" >"$work/diff" && same=$((same + 1)) || head -3 "$work/diff"
  rm -rf "$work/resumed"
done
echo "$interrupted of 40 runs were killed before their end, $same of 20 results are the same bytes"
check "same bytes 20 times" [ $same = 20 ]
check "some runs were interrupted" [ $interrupted -ge 5 ]
check "nothing is left behind" [ "$(ls -A "$work" | grep -c unfinished)" = 0 ]

"${quantize[@]}" -o "$work/other" --resume >/dev/null 2>&1 &
pid=$!
for _ in $(seq 1000); do [ -f "$work/.other.unfinished/finished.txt" ] && break; sleep 0.005; done
kill -9 $pid
wait $pid 2>/dev/null
if [ ! -d "$work/other" ]; then
  refuse "another run" "hadamard-block" "${quantize[@]}" --hadamard-block 16 -o "$work/other" --resume
fi

check "verify" expect 0 "$tool" verify "$work/whole"
check "it says so" says "every byte is as it was written"
found=0
for i in $(seq 20); do
  # A random byte of the folder, weighted by size but for every third, which is of a small file.
  file=model.safetensors
  [ $((i % 3)) = 0 ] && file=$(ls "$work/whole" | sort -R --random-source=<(yes $i) | head -1)
  size=$(stat -c %s "$work/whole/$file")
  at=$(((RANDOM * 32768 * 32768 + RANDOM * 32768 + RANDOM) % size))
  byte=$(od -An -tu1 -j $at -N 1 "$work/whole/$file" | tr -d ' ')
  patch() { printf "\\x$(printf %x "$1")" | dd of="$work/whole/$file" bs=1 seek=$at conv=notrunc 2>/dev/null; }
  patch $(((byte + 1 + RANDOM % 255) % 256))
  "$tool" verify "$work/whole" >"$work/out" 2>"$work/err"
  [ $? = 2 ] && found=$((found + 1)) || echo "not found: $file at $at"
  patch "$byte"
done
check "verify finds 20 of 20 changed bytes" [ $found = 20 ]
check "and nothing when they are put back" expect 0 "$tool" verify "$work/whole"
echo "verify found $found of 20 changed bytes"
finish
