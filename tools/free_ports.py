"""Finds ports on which nothing listens."""

import contextlib
import socket

from tools.cluster_directory import ClusterError


def free_ports(count, host="127.0.0.1"):
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) for _ in range(count)]
        for probe in sockets:
            try:
                probe.bind((host, 0))
            except OSError as error:
                raise ClusterError(f"cannot listen at {host}: {error.strerror}; use an address of this machine") from error
        return [probe.getsockname()[1] for probe in sockets]


def free_port():
    return free_ports(1)[0]
