#!/usr/bin/env bash
# Runs tokenizer_peer.py where the tokenizers package is at hand. Usage: tokenizer.sh HALFBYTE GOLDEN_TOKENIZERS.
set -eu
python=${HALFBYTE_PYTHON:-python3}
if ! "$python" -c 'import tokenizers' 2>/dev/null; then
  echo "skipped: $python has no tokenizers package (set HALFBYTE_PYTHON)"
  exit 77
fi
exec "$python" "$(dirname "$0")/tokenizer_peer.py" "$1" "$2" --count "${HALFBYTE_TOKENIZER_STRINGS:-10000}" \
  ${HALFBYTE_WIKITEXT:+--text "$HALFBYTE_WIKITEXT"}
