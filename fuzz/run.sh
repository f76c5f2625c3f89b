#!/bin/bash
# Runs a fuzz target from its seeds; what it finds is written to the folder of findings.
#   fuzz/run.sh json|safetensors|gguf|ecosystem [SECONDS]      (BUILD: build folder, default build-fuzz)
set -eu
name=$1
seconds=${2:-60}
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build-fuzz}
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DHALFBYTE_FUZZ=ON -DHALFBYTE_TESTS=OFF >/dev/null
ninja -C "$build" "${name}_fuzz" >/dev/null
mkdir -p "$build/corpus/$name" "$build/findings"
"$build/fuzz/${name}_fuzz" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=16384 \
  -artifact_prefix="$build/findings/$name-" -print_final_stats=1 "$build/corpus/$name" "$root/fuzz/seeds/$name"
