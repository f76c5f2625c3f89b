#!/usr/bin/env bash
# A report of a tiny model, of names that try to break out of it too, seen by a browser. Usage: report.sh HALFBYTE GOLDEN [DIR].
# DIR: screenshots are kept there.
set -eu
tool=$(realpath "$1") golden=$(realpath "$2") shots=${3:+$(realpath "$3")}
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v chromium chromium-browser google-chrome >/dev/null; then
  echo "SKIPPED: no chromium here; it shows whether the HTML report looks as it should"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for i in $(seq 400); do echo "the quick brown fox $i jumps over the lazy dog"; done >text
"$tool" import "$golden/gguf/smollm2_like.gguf" -o bf16 >/dev/null
"$tool" calibrate bf16 --text text -o stats --samples 4 --seq-len 64 >/dev/null 2>&1
"$tool" analyze bf16 --stats stats --text text --windows 2 --seq-len 64 --cap-percent 30 -o analysis.json >/dev/null
evil='</script><script>alerted=1</script><img src=x onerror="alerted=1">'"'"'&|'
mkdir odd
for format in nvfp4 mxfp4 nf4; do
  "$tool" quantize bf16 -o "$format" --format $format >/dev/null
  "$tool" eval $format --perplexity text --seq-len 64 --windows 2 --reference bf16 --json $format.json >/dev/null
done
"$tool" eval bf16 --perplexity text --seq-len 64 --windows 2 --json bf16.json >/dev/null
"$tool" report bf16.json nvfp4.json mxfp4.json nf4.json analysis.json bf16 nvfp4 mxfp4 -o report.html >/dev/null
python3 - "$evil" <<'PY'
import json, sys
for name in ("nf4", "analysis"):
    text = json.load(open(name + ".json"))
    text["model"] += sys.argv[1]
    if name == "analysis":
        text["findings"].append(sys.argv[1])
        text["methods"] = [m + sys.argv[1] for m in text["methods"]]
        for linear in text["linears"]:
            linear["methods"] = {m + sys.argv[1]: e for m, e in linear["methods"].items()}
    json.dump(text, open("odd/" + name + ".json", "w"))
PY
"$tool" report bf16.json odd/nf4.json odd/analysis.json nf4 -o odd.html >/dev/null
python3 -B "$here/report_test.py" report.html ${shots:+"$shots"}
python3 -B "$here/report_test.py" odd.html
