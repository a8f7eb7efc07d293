// Declares --layout and --bucket-bytes for tools that create Pilaf tables.
#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace cell {

struct HashLayoutFlags {
  std::string layout = "buckets";
  uint32_t bucket_bytes = 1024;

  // Returns the value for the control plane: 0 for slots.
  uint32_t wanted() const { return layout == "slots" ? 0 : bucket_bytes; }
};

inline void AddHashLayoutFlags(CLI::App* app, HashLayoutFlags* flags) {
  app->add_option("--layout", flags->layout,
                  "Layout of the table. buckets: small pairs are inline and found by one read; slots: all pairs are in "
                  "extents, as in the thesis")
      ->check(CLI::IsMember({"buckets", "slots"}))
      ->capture_default_str();
  CLI::Option* bucket_bytes =
      app->add_option("--bucket-bytes", flags->bucket_bytes,
                      "Size of a bucket in bytes; pairs of up to an eighth of it, less 4 bytes, are inline")
          ->check(CLI::IsMember({512, 1024, 2048, 4096}))
          ->capture_default_str();
  app->parse_complete_callback([flags, bucket_bytes] {
    if (flags->layout == "slots" && bucket_bytes->count() > 0) {
      throw CLI::ValidationError("--bucket-bytes", "needs --layout buckets: the layout slots has no buckets");
    }
  });
}

}  // namespace cell
