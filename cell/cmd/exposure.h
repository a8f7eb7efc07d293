// Says what of a server strangers could use, by its flags: others in the network, and other users of the machine. Pure.
// The server refuses to start when there is anything, unless it is told that this is meant (--insecure).
#pragma once

#include <string>
#include <vector>

namespace cell {

struct Exposure {
  std::string control = {};            // Address of the control plane's TCP port; empty: only the Unix socket.
  bool control_tls = false;            // With mutual TLS.
  std::vector<std::string> data = {};  // HOST:PORT, or HOST, where clients connect by tcp or verbs.
  bool data_rdma = false;              // By verbs, too, which knows no certificates.
  bool secret = false;                 // Clients need a secret of the cluster...
  bool certificate = false;            // ...or, by tcp, a certificate.
  std::string zookeeper = {};          // Address of the cluster; empty: it is in a directory.
  bool zookeeper_digest = false;       // Its znodes have an ACL.
};

struct Opening {
  std::string what;   // "everyone who can reach ... can ...", as a sentence.
  std::string close;  // What to do about it.
};

// Returns what is open. A data port on loopback counts as closed: it is what `up` gives a cluster on one machine for
// trying tcp. The control plane and ZooKeeper on loopback do not, because every user of the machine reaches them.
std::vector<Opening> OpenToStrangers(const Exposure& exposure);

// Returns one line that says all of it, for a server that does not start.
std::string RefusalOf(const std::vector<Opening>& open);
// Returns one line for the log of a server that starts all the same.
std::string WarningOf(const std::vector<Opening>& open);

}  // namespace cell
