#include "cell/cmd/server_flags.h"

#include "cell/cmd/number_flags.h"
#include "cell/cmd/zookeeper_digest.h"
#include "cell/io/fabric/verbs/verbs_device.h"
#include "cell/layout/limits.h"
#include "cell/log/place/log_place.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint64_t kSnapshotBytesMax = uint64_t{1} << 40;

}  // namespace

void DeclareFlags(CLI::App* app, ServerFlags* flags) {
  app->add_option("--dir", flags->dir,
                  "Directory for the server's sockets; without --cluster, also the cluster's directory")
      ->required();
  CLI::Option* cluster = app->add_option(
      "--cluster", flags->cluster, "Cluster whose membership is in ZooKeeper: zk://HOST:PORT[,HOST:PORT...]/NAME");
  AddZooKeeperDigest(app, &flags->zookeeper_digest);
  app->add_option("--workers", flags->workers, "Number of worker threads, each with its own regions")
      ->needs(cluster)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app->add_option("--regions-max", flags->regions_max, "Maximum number of regions that each worker holds")
      ->needs(cluster)
      ->check(CLI::Range(uint32_t{1}, kRegionsMax))
      ->capture_default_str();
  app->add_option("--memory-max", flags->memory_max,
                  "Memory for the regions of this server, such as 4G; sets --regions-max to as many as fit")
      ->needs(cluster)
      ->excludes("--regions-max")
      ->check([](const std::string& text) {  // Otherwise -1 would be a large number.
        return text.find_first_not_of("0123456789") == 0 ? "a size such as 4G is needed, not " + text : std::string();
      })
      ->transform(CLI::AsSizeValue(false));
  app->add_option("--node-bytes", flags->shape.node_bytes,
                  "Size of a tree node in bytes; must be the same for all servers of a cluster")
      ->needs(cluster)
      ->check(CLI::IsMember({512, 1024, 2048, 4096}))
      ->capture_default_str();
  app->add_option("--meganode-bytes", flags->shape.meganode_bytes,
                  "Bytes for the nodes of each region, such as 64M; must be the same for all servers of a cluster")
      ->needs(cluster)
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app->add_option(
         "--extents-bytes", flags->shape.extents_bytes,
         "Bytes for the keys and values of each region, such as 256M; must be the same for all servers of a cluster")
      ->needs(cluster)
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app->add_option("--name", flags->name, "Name of this server in the cluster")->capture_default_str();
  app->add_option("--fabric", flags->fabric,
                  "How clients reach this server. auto: shm for clients on this machine; with --listen also tcp for "
                  "other machines, and verbs if it is the address of an RDMA device")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs"}))
      ->capture_default_str();
  app->add_option("--listen", flags->listen,
                  "Address for clients on other machines, HOST[:PORT]; worker N listens at PORT + N, or at a free port "
                  "if none is given")
      ->needs(cluster);
  app->add_option(
         "--secret-file", flags->secret_file,
         "File with the cluster's secret (cellctl secret new). By tcp and verbs only clients and servers can connect "
         "that "
         "prove who they are by a secret derived from it; tcp then uses TLS. Read again when it changes. By shm only "
         "this user can connect, and members of --shm-group")
      ->envname("CELL_SECRET_FILE");
  app->add_option(
         "--shm-group", flags->shm_group,
         "Group whose members may connect by shm, too, as clients. DIR gets this group and can be entered by it")
      ->needs(cluster);
  app->add_flag_callback(
      "--list-devices",
      [] {
        fmt::print("{}", Describe(ListRdmaDevices()));
        throw CLI::Success();
      },
      "List this machine's RDMA devices, and exit");
  app->add_option("--rdma-device", flags->rdma_device,
                  "RDMA device for connections to other servers, NAME or NAME:PORT; by default the route decides");
  app->add_option("--rdma-gid-index", flags->rdma_gid_index,
                  "Index of the RDMA device's GID for connections to other servers; -1: the first GID with an address");
  app->add_option("--rdma-mtu", flags->rdma_mtu, "Maximum RDMA packet size in bytes; 0: the maximum of the port")
      ->check(CLI::IsMember({0, 256, 512, 1024, 2048, 4096}));
  app->add_option(
         "--poll", flags->poll,
         "How workers wait for requests. adaptive: spin for 50 us, then sleep. busy: never sleep (for pinned cores)")
      ->check(CLI::IsMember({"adaptive", "busy"}))
      ->capture_default_str();
  app->add_flag("--batching,!--no-batching", flags->batching,
                "Process searches that arrive together as one batch (default: yes)");
  app->add_flag("--huge-pages,!--no-huge-pages", flags->huge_pages,
                "Use huge pages if enough of them are available (default: yes)");
  app->add_flag("--zero-freed", flags->zero_freed,
                "Overwrite what is freed in this server's memory: deleted and replaced pairs, and regions that "
                "were moved away or dropped. Costs time with each write, and 0.1 s for each GB of a region that goes");
  app->add_option(
         "--inline-max", flags->inline_max,
         "Store pairs of at most this many bytes, key and value together, in the tree's leaves, so that clients "
         "need no further read for them. 0: none. At most 218 with nodes of 1 KB, 90 with 512 B")
      ->check(WholeNumber(0, InlineBytesMax(kNodeBytesMax)))
      ->default_str(fmt::format("{}, or less if the nodes are too small for that", kInlineMaxDefault));
  app->add_option(
         "--snapshot-bytes", flags->snapshot_bytes,
         "Bytes that each worker may use for snapshots, such as 256M: what pairs were before they changed. Above "
         "that, the snapshot ends that has most of it. 0: a snapshot ends when something changes")
      ->transform(SizeInBytes(0, kSnapshotBytesMax))
      ->default_str("256M");
  app->add_option("--split-at", flags->split_at, "Split a meganode when this fraction of its nodes or extents is used")
      ->check(CLI::Range(0.1, 0.95))
      ->capture_default_str();
  app->add_flag("--balance,!--no-balance", flags->balance,
                "Automatically migrate regions to servers whose regions use fewer bytes (default: yes)");
  app->add_flag("--join,!--no-join", flags->join,
                "Automatically join meganodes that deletes have left small with a neighbour (default: yes)");
  app->add_option("--control", flags->control.address,
                  "Address where the control plane (gRPC) listens for operators on other machines, HOST:PORT, with "
                  "mutual TLS (--tls-certificate, --tls-key, --tls-authority); port 0: any free port. On this machine, "
                  "this user and root always reach it by the Unix socket DIR/NAME.control.sock");
  app->add_option(
      "--tls-certificate", flags->control.tls.certificate,
      "PEM file with this server's certificate, whose URI is cell://server/NAME, for --control and --listen "
      "(tcp); for --control alone it may also have the name of the host. Read again when it changes");
  app->add_option("--tls-key", flags->control.tls.key, "PEM file with the key of --tls-certificate");
  app->add_option(
      "--tls-authority", flags->control.tls.authority,
      "PEM file with the certificate authority of the cluster. Whoever has a certificate that it has signed "
      "can connect to --listen (tcp) as what its URI says (cell://client/NAME, cell://operator/NAME, "
      "cell://server/NAME), and only operators, and clients with a grant of admin, can use the control plane");
  app->add_option("--audit-log", flags->audit_log,
                  "File that gets a line of JSON for each change that operators make, and for requests that are "
                  "refused; none: no such file; default: DIR/NAME.audit");
  app->add_flag("--insecure", flags->insecure,
                "Start also if strangers can use what this server listens at: a control plane without TLS, a --listen "
                "address without --secret-file, or a ZooKeeper without --zookeeper-digest-file. A warning says which");
  app->add_option("--durability", flags->durability,
                  "When writes are on disk. none: never, there are no logs. async: soon after they are acknowledged. "
                  "sync: before they are acknowledged. Must be the same for all servers of a cluster")
      ->needs(cluster)
      ->check(CLI::IsMember({"none", "async", "sync"}))
      ->capture_default_str();
  CLI::Option* const log_store =
      app->add_option(
             "--log-store", flags->log_store,
             "Where the logs are; takeovers and migrations need one place that all servers can access. dir:PATH: a "
             "directory. rados:POOL or rados:POOL@CEPH.CONF, and ?user=NAME: a pool of Ceph RADOS, which keeps copies "
             "on several "
             "machines. Default: dir:DIR/log")
          ->check(CLI::Validator(
              [](const std::string& text) { return std::string(LogPlace::Parse(text).status().message()); }, "PLACE"));
  app->add_option("--log-dir", flags->log_dir, "The same as --log-store dir:PATH")->excludes(log_store);
  CLI::Option* const log_key = app->add_option(
      "--log-key", flags->log_key,
      "File with the keys by which logs and checkpoints are encrypted (cellctl data-key new). All servers "
      "that share the logs "
      "need it. Read again when it changes: the first key encrypts, all of them decrypt");
  app->add_flag("--log-plain-ok", flags->log_plain_ok,
                "With --log-key, read logs that are not encrypted, too: once, when encryption is turned on. "
                "Then run cellctl checkpoint")
      ->needs(log_key);
  app->add_option("--sync-wait-percent", flags->sync_wait_percent,
                  "With --durability sync, the maximum time that a flush waits for writes of the clients that the last "
                  "flush has answered, in percent of what that one took, and up to a millisecond; 0: do not wait")
      ->check(WholeNumber(0, 100))
      ->capture_default_str();
  app->add_option("--sync-bound-ms", flags->sync_bound_ms,
                  "With --durability async, the maximum time in milliseconds from acknowledging a write until it is on "
                  "disk; a crash loses at most the writes of this time, and writes wait while the disk is slower")
      ->check(CLI::Range(1.0, 10'000.0))
      ->capture_default_str();
  app->add_option(
         "--checkpoint-mb", flags->checkpoint_mb,
         "Write a checkpoint of a region when its log has this many MB and is twice as large as the region's data")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_option("--takeover-after", flags->takeover_after_s,
                  "Seconds after a server is gone until other servers take over its regions")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app->add_option("--stop-at", flags->stop_at,
                  "For tests: stop the process (SIGSTOP) at this point of a split, migration or join");
  app->add_option("--log-level", flags->log_level, "Log level: trace, debug, info, warning or error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}))
      ->capture_default_str();
  CLI::Option* log_file = app->add_option(
      "--log-file", flags->log_file,
      "File for the server's messages, which is renamed to PATH.1 when it is full, and the older ones to "
      "PATH.2 and so on; default: standard output");
  app->add_option("--log-file-mb", flags->log_file_mb, "Size in MB at which a new --log-file is begun")
      ->needs(log_file)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_option("--log-files", flags->log_files, "Number of log files that are kept, with the one that is written")
      ->needs(log_file)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

}  // namespace cell
