# What the scripts beside this share: counted checks of commands. Sourced; leaves $work, a folder of the test's own.
set -u
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
# refuse NAME PATTERN COMMAND...: exit code 2 and one sentence that holds the pattern
refuse() {
  local name=$1 pattern=$2
  shift 2
  check "$name" expect 2 "$@"
  check "$name: says why ($pattern)" says "$pattern"
  check "$name: one sentence" one_sentence
}
finish() {
  echo "$passed passed, $failed failed"
  [ $failed = 0 ]
}
