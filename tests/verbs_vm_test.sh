#!/usr/bin/env bash
# Tests the verbs fabric on a real RDMA stack: verbs_suite.sh in a virtual machine with a soft-RoCE device. A machine
# that cannot run one skips it, unless CELL_REQUIRE_VM is set, as in CI.
set -uo pipefail
tools/soft_roce_vm --seconds 600 --with "$PWD/cell/io/fabric/verbs/verbs_fabric_test" --with "$PWD/tests/roles_test" \
  --with "$PWD/tests/verbs_suite.sh" --with ib_read_lat --with ib_read_bw "CELL_VERBS_ROUNDS=500 verbs_suite.sh 10.0.0.1"
status=$?
if ((status == 77)) && [[ -z ${CELL_REQUIRE_VM:-} ]]; then
  echo "SKIPPED: this machine cannot run the virtual machine, so the verbs fabric was not shown here; the reason is above"
  exit 0
fi
exit $status
