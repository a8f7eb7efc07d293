#!/bin/sh
# Shows that the verbs fabric works on this machine's RDMA device, and how fast it is compared with perftest.
#
#   ./bazelw run --config=opt //tests:verbs_suite -- HOST        HOST: the device's address (cell_server --list-devices)
#
# Runs the fabric's conformance suite and that of roles; a cluster of two servers with a load, every path, a meganode
# split, and a server killed under load; then reads of 1 KB with cell_bench, ib_read_lat and ib_read_bw.
# //tests:verbs_vm_test runs it in a virtual machine with a soft-RoCE device. Needs cell_server, cellctl, cell_bench,
# verbs_fabric_test, roles_test and perftest on PATH; with Bazel all but perftest are. The exit status is 0 if
# everything succeeded.
set -eu
# Bazel's runfiles.
for program in tools/cell_bench cell/cmd/cell_server cell/io/fabric/verbs/verbs_fabric_test tests/roles_test; do
  if [ -x "$program" ]; then PATH=$PWD/$(dirname "$program"):$PATH; fi
done
[ $# -eq 1 ] || { sed -n '2,/^set /p' "$0" | sed 's/^# \{0,1\}//; /^set /d'; exit 2; }
host=$1
directory=$(mktemp -d /tmp/cell-verbs-XXXXXX)
export CELL_CLUSTER=$directory CELL_TEST_RDMA_HOST=$host
cellctl secret new "$directory/secret"
export CELL_SECRET_FILE=$directory/secret
servers=
trap 'kill $servers 2>/dev/null || true; rm -rf "$directory"' EXIT
say() { echo "== $*"; }
fail() {
  echo "FAILED: $*" >&2
  tail -5 "$directory"/*.log >&2 || true
  exit 1
}

say "devices"
cell_server --list-devices

say "conformance"
verbs_fabric_test --gtest_color=no --gtest_brief=1 >"$directory/conformance" 2>&1 || { cat "$directory/conformance"; fail "conformance"; }
tail -2 "$directory/conformance"
if grep -q SKIPPED "$directory/conformance"; then fail "some of it was skipped"; fi

say "roles"
roles_test --gtest_color=no --gtest_brief=1 --gtest_filter='Verbs/*' >"$directory/roles" 2>&1 || { cat "$directory/roles"; fail "roles"; }
tail -2 "$directory/roles"
if grep -q SKIPPED "$directory/roles"; then fail "roles were not tested"; fi

say "a cluster of two servers"
cat >"$directory/cluster.json" <<JSON
{"format": 2, "node_bytes": 1024, "meganode_bytes": 2097152, "extents_bytes": 8388608, "servers": [
  {"name": "server-0", "workers": [{"verbs": "$host:7470", "regions_max": 32}]},
  {"name": "server-1", "workers": [{"verbs": "$host:7471", "regions_max": 32}]}]}
JSON
for name in server-0 server-1; do
  cell_server --dir "$directory" --name $name --no-huge-pages >"$directory/$name.log" 2>&1 &
  servers="$servers $!"
  first=${first:-$!} last=$!
done
tries=0
until cellctl status >/dev/null 2>"$directory/error"; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || { cat "$directory/error"; fail "the servers do not answer"; }
  sleep 0.2
done
grep -h "serves at" "$directory"/server-?.log

say "a load that splits meganodes"
awk 'BEGIN { for (i = 0; i < 40000; i++) printf "key%07d\t%d vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\n", i * 7919 % 1000003, i }' >"$directory/records"
sort "$directory/records" >"$directory/expected"
cellctl load "$directory/records" 2>/dev/null
for path in server client hybrid; do
  cellctl --path $path scan >"$directory/scan" || fail "scan by $path"
  cmp "$directory/scan" "$directory/expected" || fail "scan by $path is not what was loaded"
done
cellctl regions | tee "$directory/regions"
[ "$(grep -c server- "$directory/regions")" -ge 3 ] || fail "the tree has not split"
cellctl check

say "both paths, and the selector between them"
for workload in get put scan; do
  for path in server client hybrid; do
    cell_bench --workload $workload --path $path --keys 20000 --depth 4 --seconds 1 >"$directory/bench" || fail "$workload by $path"
    echo "$workload by $path: $(awk '$1 == "ops_per_second" { printf "%d", $2 }' "$directory/bench") operations/s"
  done
done

say "hash tables"
for layout in slots buckets; do
  cellctl hash create $layout --layout $layout || fail "hash create"
  head -5000 "$directory/records" | cellctl load --table $layout - 2>/dev/null || fail "load --table"
  for path in server client; do
    for line in 1 2500 5000; do
      key=$(awk -v line=$line 'NR == line { print $1 }' "$directory/records")
      [ "$(cellctl --path $path hash get --table $layout "$key")" = "$(awk -v line=$line 'NR == line { print substr($0, index($0, "\t") + 1) }' "$directory/records")" ] ||
        fail "hash get by $path of $layout"
    done
  done
  for path in server client hybrid; do
    cell_bench --tier pilaf --table $layout --workload get --path $path --keys 5000 --depth 4 --seconds 1 >"$directory/bench" || fail "$layout by $path"
    echo "get of $layout by $path: $(awk '$1 == "ops_per_second" { printf "%d", $2 }' "$directory/bench") operations/s"
  done
done
cellctl check

say "reads of 1 KB, beside perftest"
number() { awk -v name="$1" '$1 == name { print $2 }' "$directory/bench"; }
perftest() { # Its server, then its client: the last line of numbers. One that crashes leaves the other waiting for ever.
  timeout 60 "$@" >/dev/null 2>&1 &
  sleep 1
  timeout 60 "$@" "$host" 2>/dev/null | awk '$1 == 1024 { line = $0 } END { print line }'
  wait $! || true
}
rounds=${CELL_VERBS_ROUNDS:-2000}
cell_bench --workload raw-read --path client --keys 20000 --depth 1 --seconds 2 >"$directory/bench"
latency=$(sed -n 's/^latency_us .*p50 \([0-9.]*\) .*/\1/p' "$directory/bench")
echo "one at a time: cell_bench raw-read p50 $latency us; ib_read_lat $(perftest ib_read_lat -R -s 1024 -n "$rounds" | awk '{ print $5 }') us"
cell_bench --workload raw-read --path client --keys 20000 --depth 64 --seconds 3 >"$directory/bench"
rate=$(number ops_per_second)
other=$(perftest ib_read_bw -R -s 1024 -n "$((rounds * 5))" | awk '{ printf "%d", $5 * 1000000 }')
awk -v a="$rate" -v b="$other" 'BEGIN { printf "many at once: cell_bench raw-read %d reads/s; ib_read_bw %d reads/s; ratio %.2f\n", a, b, (b > 0 ? a / b : 0) }'

say "CPU time of an operation, user and system, in us (soft-RoCE's own work is in it)"
jiffies() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
for what in "raw-read client" "raw-call client" "get server" "get client"; do
  set -- $what
  cell_bench --workload "$1" --path "$2" --keys 20000 --depth 16 --seconds 4 >"$directory/bench" 2>/dev/null &
  bench=$!
  sleep 1.5
  client=$(jiffies $bench) server=$(($(jiffies "$first") + $(jiffies "$last")))
  sleep 2
  client=$(($(jiffies $bench) - client)) server=$(($(jiffies "$first") + $(jiffies "$last") - server))
  wait $bench
  awk -v rate="$(number ops_per_second)" -v client="$client" -v server="$server" -v what="$what path" \
    'BEGIN { printf "%s: client %.1f, servers %.1f\n", what, client * 10000 / (2 * rate), server * 10000 / (2 * rate) }'
done

say "a server killed under load"
cell_bench --workload mixed --keys 20000 --prefix "" --seconds 60 >"$directory/bench" 2>"$directory/error" &
bench=$!
sleep 3
# Do not kill the server with the root of the tree, without which nothing can be reached.
root=$(cellctl regions | awk '$5 > tier + 0 { tier = $5; root = $1 } END { print root }')
victim=$last port=7471
if [ "$root" = server-1 ]; then victim=$first port=7470; fi
kill -9 "$victim"
status=0
wait $bench || status=$?
cat "$directory/error"
[ $status -eq 2 ] || fail "cell_bench ended with status $status, not with an error"
grep -q "$host:$port" "$directory/error" || fail "the error does not say which server is gone"
served=0
for key in $(awk 'NR % 4000 == 1 { print $1 }' "$directory/expected"); do
  if cellctl has "$key" 2>/dev/null; then served=$((served + 1)); fi
done
echo "of ten keys all over the store, $served are on the other server and answered"
[ $served -gt 0 ] || fail "the other server does not serve any more"
say "all is well"
