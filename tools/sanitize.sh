#!/usr/bin/env bash
# Runs all unit tests and 300 seeds of the simulation under sanitizers: the address and the undefined behaviour sanitizer
# together, then the thread sanitizer. It takes hours on two cores; each part can be run alone.
#
#   tools/sanitize.sh              all parts
#   tools/sanitize.sh --part 3     one of them
#   tools/sanitize.sh --rotate     the part whose turn it is at this commit: successive commits run all of them
#   tools/sanitize.sh --list       what the parts are
#
# The exit status is 0 if no test failed and no sanitizer reported anything.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizers=("address" "thread")
flags_address=(--config=asan --config=ubsan)
flags_thread=(--config=tsan)

# Query expressions; together they are all unit tests, and the simulation's seeds.
pure='kind(cc_test, //cell/base/... + //cell/layout/... + //cell/tree/... + //cell/log/... + //cell/cluster/... + //pilaf/... + //selector/...)'
groups=(
  "$pure"
  "kind(cc_test, //cell/...) except $pure"
  "kind(cc_test, //tests/... + //tools/...) except kind(cc_test, //tests/simulation/...)"
  "kind(cc_test, //tests/simulation/...) + //tests/simulation:seeds_test"
)
parts=$((${#groups[@]} * ${#sanitizers[@]}))

describe() {  # PART, from 1 on
  echo "part $1 of $parts: ${sanitizers[$((($1 - 1) % 2))]} sanitizer, ${groups[$((($1 - 1) / 2))]}"
}

run() {  # PART
  describe "$1"
  local -n flags="flags_${sanitizers[$((($1 - 1) % 2))]}"
  local tests
  mapfile -t tests < <(./bazelw query --noshow_progress "${groups[$((($1 - 1) / 2))]}" 2>/dev/null)
  ((${#tests[@]})) || { echo "no tests: ./bazelw query fails" >&2; return 1; }
  # A test takes up to twenty times as long as without the sanitizer.
  ./bazelw test "${flags[@]}" --build_tests_only --test_timeout=1200,2400,3600,3600 "${tests[@]}"
}

case "${1:-}" in
  "") chosen=($(seq 1 "$parts")) ;;
  --part) chosen=("${2:?which part?}") ;;
  --rotate) chosen=($(($(git rev-list --count HEAD) % parts + 1))) ;;
  --list)
    for ((part = 1; part <= parts; ++part)); do describe "$part"; done
    exit
    ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit 2
    ;;
esac
failed=()
for part in "${chosen[@]}"; do
  ((part >= 1 && part <= parts)) || { echo "there are parts 1 to $parts" >&2; exit 2; }
  run "$part" || failed+=("$part")
done
if ((${#failed[@]})); then
  echo "sanitizers: failed in part ${failed[*]}"
  exit 1
fi
echo "sanitizers: nothing found in part ${chosen[*]}"
