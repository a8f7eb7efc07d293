// Declares the flags that name a cluster and say how to reach it.
#pragma once

#include "CLI/CLI.hpp"
#include "cell/client/client.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace cell {

inline void AddClientFlags(CLI::App* app, ClientOptions* options) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("cell"));  // Standard output is for the requested data.
  app->add_option_function<std::string>(
         "--log-level", [](const std::string& level) { spdlog::set_level(spdlog::level::from_str(level)); },
         "trace, debug (which fabric reaches which server, and why), info, warning, error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}));
  app->add_option("--cluster", options->cluster, "The cluster: its directory, or zk://HOST:PORT[,HOST:PORT...]/NAME")
      ->envname("CELL_CLUSTER");
  app->add_option("--zookeeper-digest", options->zookeeper_digest, "USER:PASSWORD, if the cluster's znodes need it")
      ->envname("CELL_ZOOKEEPER_DIGEST");
  app->add_option("--fabric", options->fabric,
                  "How to reach servers. auto: shm on the same machine, else verbs, else tcp")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs"}))
      ->envname("CELL_FABRIC")
      ->capture_default_str();
  app->add_option("--selector", options->selector, "What the hybrid path chooses by (selector/selector.h)")
      ->check(CLI::IsMember({"cell", "unpriced", "thesis"}))
      ->capture_default_str();
  app->add_option("--secret-file", options->secret_file, "The cluster's secret, if it has one")
      ->envname("CELL_SECRET_FILE");
  app->add_option("--rdma-device", options->rdma_device,
                  "For verbs, NAME or NAME:PORT; else the route to the server decides");
  app->add_option("--rdma-gid-index", options->rdma_gid_index,
                  "For verbs: which of its GIDs; -1: the first of an address")
      ->capture_default_str();
  app->add_option("--rdma-mtu", options->rdma_mtu,
                  "For verbs, bytes: packets are at most so large; 0: as the port takes")
      ->check(CLI::IsMember({0, 256, 512, 1024, 2048, 4096}));
}

}  // namespace cell
