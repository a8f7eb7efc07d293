// Declares the flags that name a cluster and say how to reach it.
#pragma once

#include "CLI/CLI.hpp"
#include "cell/client/client.h"
#include "cell/cmd/zookeeper_digest.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace cell {

inline void AddClientFlags(CLI::App* app, ClientOptions* options) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("cell"));  // Standard output is for the requested data.
  app->add_option_function<std::string>(
         "--log-level", [](const std::string& level) { spdlog::set_level(spdlog::level::from_str(level)); },
         "Log level: trace, debug (shows which fabric reaches which server, and why), info, warning or error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}));
  app->add_option("--cluster", options->cluster, "Cluster: its directory, or zk://HOST:PORT[,HOST:PORT...]/NAME")
      ->envname("CELL_CLUSTER");
  AddZooKeeperDigest(app, &options->zookeeper_digest);
  app->add_option("--fabric", options->fabric,
                  "How to reach servers. auto: shm on the same machine, otherwise verbs if possible, otherwise tcp")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs"}))
      ->envname("CELL_FABRIC")
      ->capture_default_str();
  app->add_option("--selector", options->selector, "Rule by which the hybrid path chooses (selector/selector.h)")
      ->check(CLI::IsMember({"cell", "unpriced", "thesis"}))
      ->capture_default_str();
  app->add_option("--secret-file", options->secret_file,
                  "File with the secret by which this client proves who it is (cellctl secret), if the cluster has one")
      ->envname("CELL_SECRET_FILE");
  app->add_option(
      "--tls-authority", options->tls_authority,
      "PEM file with the authority that signs the cluster's certificates, for servers that are reached by TCP");
  app->add_option("--tls-certificate", options->tls_certificate,
                  "PEM file with this client's certificate, whose URI is cell://client/NAME or cell://operator/NAME");
  app->add_option("--tls-key", options->tls_key, "PEM file with the key of --tls-certificate");
  app->add_option("--rdma-device", options->rdma_device,
                  "RDMA device for verbs, NAME or NAME:PORT; by default the route to the server decides");
  app->add_option("--rdma-gid-index", options->rdma_gid_index,
                  "Index of the RDMA device's GID for verbs; -1: the first GID with an address")
      ->capture_default_str();
  app->add_option("--rdma-mtu", options->rdma_mtu, "Maximum packet size for verbs in bytes; 0: the maximum of the port")
      ->check(CLI::IsMember({0, 256, 512, 1024, 2048, 4096}));
}

}  // namespace cell
