"""Simulates several hosts on one machine: network namespaces, joined by a bridge in a namespace of its own."""

import contextlib
import subprocess


class Unavailable(Exception):
    """This machine cannot make network namespaces; the message says why."""


class Network:
    """Hosts by name, each with one address in 10.77.0.0/24. Does not touch the machine's own network."""

    def __init__(self):
        self.hosts = {}
        self.addresses = {}
        self.hub = self._namespace()
        self._inside(self.hub, "ip", "link", "add", "bridge0", "type", "bridge")
        self._inside(self.hub, "ip", "link", "set", "bridge0", "up")

    def add(self, name):
        """Adds a host. Returns its address."""
        number = len(self.hosts) + 1
        host = self.hosts[name] = self._namespace()
        port, address = f"port-{number}", f"10.77.0.{number}"  # An interface's name has at most 15 characters.
        self.addresses[name] = address
        self._inside(self.hub, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        self._inside(self.hub, "ip", "link", "set", port, "master", "bridge0", "up")
        self._inside(host, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        self._inside(host, "ip", "link", "set", "eth0", "up")
        self._inside(host, "ip", "link", "set", "lo", "up")
        return address

    def on(self, name):
        """Returns the prefix of a command that is to run on this host."""
        return ["nsenter", f"--net=/proc/{self.hosts[name].pid}/ns/net"]

    def cut(self, name):
        """Takes the host off the network: packets are silently lost."""
        self._inside(self.hub, "ip", "link", "set", self._port(name), "nomaster")

    def mend(self, name):
        self._inside(self.hub, "ip", "link", "set", self._port(name), "master", "bridge0")

    def cut_between(self, one, other, both=True):
        """Loses what `one` sends to `other`, and, with `both`, the opposite direction. All other traffic is unaffected.
        """
        for sender, receiver in ((one, other), (other, one))[:2 if both else 1]:
            # To a hardware address that nobody has.
            self._inside(self.hosts[sender], "ip", "neighbour", "replace", self.addresses[receiver], "lladdr", "02:00:00:00:00:99",
                         "nud", "permanent", "dev", "eth0")

    def mend_between(self, one, other):
        for sender, receiver in ((one, other), (other, one)):
            with contextlib.suppress(Unavailable):  # This direction was not cut.
                self._inside(self.hosts[sender], "ip", "neighbour", "del", self.addresses[receiver], "dev", "eth0")

    def _port(self, name):
        return f"port-{list(self.hosts).index(name) + 1}"

    def close(self):
        for holder in [*self.hosts.values(), self.hub]:
            holder.kill()
            holder.wait()

    @staticmethod
    def _namespace():
        """Starts a process that only holds a namespace open."""
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        if holder.stdout.readline() != "ready\n":
            raise Unavailable(f"no network namespaces: {holder.communicate()[1].strip()}")
        return holder

    @staticmethod
    def _inside(holder, *command):
        result = subprocess.run(["nsenter", f"--net=/proc/{holder.pid}/ns/net", *command], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode != 0:
            raise Unavailable(f"{' '.join(command)}: {result.stderr.strip()}")
