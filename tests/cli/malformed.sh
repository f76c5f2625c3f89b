#!/bin/bash
# Malformed models through the program: exit code 2, one sentence on stderr that names the input, and no output left.
#   malformed.sh build/bin/halfbyte
set -u
halfbyte=$(realpath "$1")
golden=$(realpath "$(dirname "$0")/../golden")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cases=0
failures=0

# Sanitizers reserve more address space than a limit may allow; then the program runs without one.
limit=4000000
{ (ulimit -v $limit && "$halfbyte" --version) >/dev/null || limit=unlimited; } 2>/dev/null

fail() {
  echo "FAILED $1: $2"
  sed 's/^/    /' err
  failures=$((failures + 1))
}

# refuse NAME INPUT COMMAND...: INPUT must stand in the message; afterwards the folder holds what it held before.
refuse() {
  local name=$1 input=$2 before after rc
  shift 2
  cases=$((cases + 1))
  before=$(find . -not -name err -not -name out.txt | sort)
  (ulimit -v $limit && exec timeout 60 "$halfbyte" "$@") >out.txt 2>err </dev/null
  rc=$?
  after=$(find . -not -name err -not -name out.txt | sort)
  if [ $rc -ne 2 ]; then
    fail "$name" "exit code $rc, expected 2"
  elif [ "$(wc -l <err)" -ne 1 ] || ! grep -q '^halfbyte: ' err; then
    fail "$name" "stderr is not one sentence"
  elif ! grep -qF -- "$input" err; then
    fail "$name" "the message does not name $input"
  elif grep -q 'internal error' err; then
    fail "$name" "called an internal error"
  elif [ "$before" != "$after" ]; then
    fail "$name" "left files behind: $(diff <(echo "$before") <(echo "$after") | grep '^[<>]' | tr '\n' ' ')"
  fi
}

# patch FILE OFFSET BYTES: BYTES in printf notation.
patch() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

gguf() { cp "$golden/gguf/qwen3.gguf" m.gguf && chmod u+w m.gguf; }
import() { refuse "import, $1" m.gguf import m.gguf -o out; }

# GGUF files.
: >m.gguf && import "empty file"
echo "not a model" >m.gguf && import "text file"
cp "$golden/models/qwen3/model.safetensors" m.gguf && import "safetensors file"
for size in 4 23 24 100 1000 5000 60000 113727; do
  head -c $size "$golden/gguf/qwen3.gguf" >m.gguf && import "cut to $size bytes"
done
gguf && patch m.gguf 4 '\x00\x00\x00\x03' && import "big-endian"
gguf && patch m.gguf 4 '\x09' && import "version 9"
gguf && patch m.gguf 8 '\xff\xff\xff\xff\xff\xff\xff\xff' && import "2^64 - 1 tensors"
gguf && patch m.gguf 16 '\xff\xff\xff\xff\xff\xff\xff\x7f' && import "2^63 - 1 keys"
gguf && patch m.gguf 24 '\xff\xff\xff\xff\xff\xff\xff\xff' && import "key of 2^64 - 1 bytes"
gguf && sed -i 's/gpt2/bert/' m.gguf && import "unknown tokenizer"
gguf && sed -i 's/attn_q_norm/attn_x_norm/' m.gguf && import "unknown tensor"
rm m.gguf
import "missing file"
mkdir m.gguf && import "folder" && rmdir m.gguf
gguf
mkdir -p full && touch full/notes.txt && refuse "import, folder in use" full import m.gguf -o full
refuse "import, folder without a model" full import m.gguf -o full --overwrite
refuse "import, output is a file" full/notes.txt import m.gguf -o full/notes.txt
refuse "import, no parent folder" none/out import m.gguf -o none/out
rm -rf full m.gguf

# Model folders.
model() { rm -rf model && cp -r "$golden/models/$1" model && chmod -R u+w model; }
quantize() { refuse "quantize, $1" "${2:-model}" quantize model -o out --format nvfp4; }
tiny() { # HEADER [DATA]: model.safetensors of that header
  local length
  length=$(printf '%016x' ${#1})
  printf "$(echo "$length" | sed 's/\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)/\\x\8\\x\7\\x\6\\x\5\\x\4\\x\3\\x\2\\x\1/')%s%s" \
    "$1" "${2-}" >model/model.safetensors
}

refuse "quantize, missing folder" absent quantize absent -o out --format nvfp4
model llama3 && rm model/config.json && quantize "no config.json" config.json
model llama3 && rm model/model.safetensors && quantize "no weights"
for text in '' '[]' '{' 'null' '"llama"' '{"model_type": "llama"' '{"model_type": 7}' '{"model_type": "bert"}' \
  '{"model_type": "llama", "model_type": "llama"}' '{"model_type": "llama"}' "$(printf '[%.0s' {1..5000})" $'{"a": "\xff"}'; do
  model llama3 && printf '%s' "$text" >model/config.json && quantize "config.json: ${text:0:40}" config.json
done
for change in 's/"hidden_size": 64/"hidden_size": 0/' 's/"hidden_size": 64/"hidden_size": -64/' \
  's/"hidden_size": 64/"hidden_size": "64"/' 's/"hidden_size": 64/"hidden_size": 4611686018427387904/' \
  's/"num_hidden_layers": 2/"num_hidden_layers": 2147483647/' 's/"num_hidden_layers": 2/"num_hidden_layers": 1e999/' \
  's/"num_attention_heads": 4/"num_attention_heads": 0/' 's/"num_key_value_heads": 2/"num_key_value_heads": 3/' \
  's/"vocab_size": 163/"vocab_size": 0/' 's/"head_dim": 16/"head_dim": 15/'; do
  model llama3 && sed -i "$change" model/config.json && quantize "config.json with $change" model
done
for size in 0 7 8 100 3000 100000; do
  model llama3 && head -c $size "$golden/models/llama3/model.safetensors" >model/model.safetensors &&
    quantize "weights cut to $size bytes" model.safetensors
done
model llama3 && patch model/model.safetensors 0 '\xff\xff\xff\xff\xff\xff\xff\xff' && quantize "header of 2^64 - 1 bytes"
model llama3 && patch model/model.safetensors 8 '[' && quantize "header that is no object"
model llama3 && sed -i 's/model.norm.weight/model.nor\x00.weight/' model/model.safetensors && quantize "zero byte in the header"
model llama3 && echo >>model/model.safetensors && quantize "data nobody owns"
model llama3 && tiny '{}' && quantize "no tensors"
model llama3 && tiny '{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}}' 12345678 && quantize "shape that overflows"
model llama3 && tiny '{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}' 1 && quantize "foreign dtype"
model llama3 && rm model/model.safetensors && mkdir model/model.safetensors && quantize "weights that are a folder"
model llama_sharded && rm model/model-00003-of-00004.safetensors && quantize "missing shard" model-00003-of-00004.safetensors
for name in ../secret.safetensors /etc/secret.safetensors sub/secret.safetensors; do
  model llama_sharded && sed -i "s#model-00001-of-00004.safetensors#$name#" model/model.safetensors.index.json &&
    quantize "shard $name" model.safetensors.index.json
done
model llama_sharded && echo '{"weight_map": []}' >model/model.safetensors.index.json && quantize "weight_map list" weight_map
rm -rf model

if [ $failures -ne 0 ]; then
  echo "$failures of $cases malformed inputs were not refused as they should be"
  exit 1
fi
echo "$cases malformed inputs refused"
