#!/usr/bin/env bash
# Runs all unit tests and 300 seeds of the simulation under sanitizers: the address and the undefined behaviour
# sanitizer together, and the thread sanitizer. This takes hours on two cores; each part can be run alone.
#
#   tools/sanitize.sh              all parts
#   tools/sanitize.sh --part 3     one of them
#   tools/sanitize.sh --rotate     the part for this commit: successive commits run all parts that take minutes
#   tools/sanitize.sh --list       lists the parts
#
# The exit status is 0 if no test failed and no sanitizer reported anything.
set -euo pipefail
cd "$(dirname "$0")/.."

flags_address=(--config=asan --config=ubsan)
flags_thread=(--config=tsan)

# Query expressions. Together they are all unit tests, and the simulation's seeds.
lookups="//pilaf:lookup_test"
clusters="//tests:crash_test + //tests:linearizable_test"
takeovers="//tests:takeover_test + //tests:torn_read_test"
io="kind(cc_test, //cell/io/... + //cell/client/...)"
serving="kind(cc_test, //cell/cmd/... + //cell/server/... + //cell/control/...)"
simulation="kind(cc_test, //tests/simulation/...) + //tests/simulation:seeds_test"
short=(
  "kind(cc_test, //cell/...) except ($io + $serving)"
  "kind(cc_test, //pilaf/... + //selector/...) except $lookups"
  "$io"
  "$serving"
  "kind(cc_test, //tests/... + //tools/...) + //tests:c_api_test except ($clusters + $takeovers + $simulation)"
)
# These run in one thread, where the thread sanitizer has little to find; it also takes longest for them.
long=("$lookups" "$clusters" "$takeovers" "$simulation")

# Each part is a sanitizer and the tests.
parts=()
for tests in "${short[@]}"; do parts+=("address $tests" "thread $tests"); done
for tests in "${long[@]}"; do parts+=("address $tests"); done
turns=${#parts[@]}  # --rotate takes one of these: each takes minutes.
for tests in "${long[@]}"; do parts+=("thread $tests"); done

describe() {  # PART, from 1 on
  local part=${parts[$(($1 - 1))]}
  echo "part $1 of ${#parts[@]}: ${part%% *} sanitizer, ${part#* }"
}

run() {  # PART
  describe "$1"
  local part=${parts[$(($1 - 1))]}
  local -n flags="flags_${part%% *}"
  local tests
  mapfile -t tests < <(./bazelw query --noshow_progress "(${part#* }) except attr(tags, manual, //...)" 2>/dev/null)
  ((${#tests[@]})) || { echo "no tests: ./bazelw query fails" >&2; return 1; }
  # A test takes up to twenty times as long as without the sanitizer.
  ./bazelw test "${flags[@]}" --build_tests_only --test_timeout=1200,2400,3600,3600 "${tests[@]}"
}

case "${1:-}" in
  "") chosen=($(seq 1 "${#parts[@]}")) ;;
  --part) chosen=("${2:?which part?}") ;;
  --rotate) chosen=($(($(git rev-list --count HEAD) % turns + 1))) ;;
  --list)
    for ((part = 1; part <= ${#parts[@]}; ++part)); do describe "$part"; done
    exit
    ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit 2
    ;;
esac
failed=()
for part in "${chosen[@]}"; do
  ((part >= 1 && part <= ${#parts[@]})) || { echo "there are parts 1 to ${#parts[@]}" >&2; exit 2; }
  run "$part" || failed+=("$part")
done
if ((${#failed[@]})); then
  echo "sanitizers: failed in part ${failed[*]}"
  exit 1
fi
echo "sanitizers: nothing found in part ${chosen[*]}"
