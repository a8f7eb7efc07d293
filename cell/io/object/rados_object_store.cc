#include "cell/io/object/rados_object_store.h"

#include <rados/librados.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr const char* kEpoch = "epoch";
// OSDs return no more entries at once (osd_max_omap_entries_per_request).
constexpr uint64_t kEntriesAtOnce = 1024;
constexpr int kReadHeadTries = 100;

// Epochs are compared as text, so they all have the same length.
std::string EpochText(uint32_t epoch) { return fmt::format("{:010}", epoch); }

absl::Status Refused(absl::StatusCode code, const std::string& what) { return absl::Status(code, what); }

std::optional<uint32_t> ParseEpoch(const std::string& text) {
  const unsigned long long epoch = std::strtoull(text.c_str(), nullptr, 10);
  if (epoch > UINT32_MAX || text != EpochText(static_cast<uint32_t>(epoch))) return std::nullopt;
  return static_cast<uint32_t>(epoch);
}

std::string TextOf(int error) { return std::strerror(error); }

// librados takes a list of paths, in which it replaces $names, and would wait for what a pipe brings.
absl::Status CheckConfPath(const std::string& path) {
  if (path.find_first_of(",; \t$") != std::string::npos) {
    return absl::InvalidArgumentError(fmt::format(
        "the path of a Ceph configuration must not contain spaces or any of , ; $ for librados: {}", ForMessage(path)));
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(fmt::format("the Ceph configuration {} is not a file", path));
  }
  return absl::OkStatus();
}

// Frees what librados has allocated.
template <auto kRelease>
struct Release {
  template <typename T>
  void operator()(T* what) const {
    kRelease(what);
  }
};
using WriteOp = std::unique_ptr<void, Release<rados_release_write_op>>;
using ReadOp = std::unique_ptr<void, Release<rados_release_read_op>>;

// The C strings and lengths that librados wants.
struct Texts {
  void Add(const std::string& text) {
    pointers.push_back(text.data());
    lengths.push_back(text.size());
  }
  std::vector<const char*> pointers;
  std::vector<size_t> lengths;
};

}  // namespace

struct RadosObjectStore::Cluster {
  ~Cluster() {
    if (io != nullptr) rados_ioctx_destroy(io);
    if (rados != nullptr) rados_shutdown(rados);
  }

  // Returns what the error of a call for an object means.
  absl::Status ErrorOf(int error, const std::string& name) const {
    const auto told = [&](absl::StatusCode code, const std::string& what) {
      return Refused(code, fmt::format("pool {}, object {}: {}", pool, name, what));
    };
    switch (-error) {
      case ENOENT:
        return told(absl::StatusCode::kNotFound, "it does not exist");
      case EEXIST:
        return told(absl::StatusCode::kAlreadyExists, "it exists already");
      case ECANCELED:
        return told(absl::StatusCode::kAborted, "it was changed meanwhile");
      case ENOSPC:
      case EDQUOT:
        return told(absl::StatusCode::kResourceExhausted, "the pool is full");
      case EPERM:
      case EACCES:
      case EROFS:
        return told(
            absl::StatusCode::kPermissionDenied,
            fmt::format("{} (does this client have the capability osd 'allow rw pool={}'?)", TextOf(-error), pool));
      case ESHUTDOWN:
        return told(absl::StatusCode::kUnavailable, "this client is on the blocklist of the Ceph cluster");
      case ETIMEDOUT:
        return told(absl::StatusCode::kUnavailable,
                    fmt::format("Ceph did not answer for {} s (ceph -s tells its health)", patience_s));
      default:
        return told(absl::StatusCode::kUnavailable, TextOf(-error));
    }
  }

  absl::Status Damaged(const std::string& name, const std::string& what) const {
    return absl::DataLossError(fmt::format("pool {}, object {}: it is damaged: {}", pool, name, what));
  }

  std::string pool;
  int patience_s = 0;
  rados_t rados = nullptr;
  rados_ioctx_t io = nullptr;
};

RadosObjectStore::RadosObjectStore(std::unique_ptr<Cluster> cluster) : cluster_(std::move(cluster)) {}
RadosObjectStore::~RadosObjectStore() = default;

absl::StatusOr<std::unique_ptr<RadosObjectStore>> RadosObjectStore::Connect(const Options& options) {
  auto cluster = std::make_unique<Cluster>();
  cluster->pool = options.pool;
  cluster->patience_s = options.patience_s;
  if (const int error = rados_create(&cluster->rados, options.user.empty() ? nullptr : options.user.c_str());
      error < 0) {
    return absl::UnavailableError(fmt::format("librados: {}", TextOf(-error)));
  }
  const char* const named = std::getenv("CEPH_CONF");
  const std::string where = !options.conf.empty() ? options.conf
                            : named != nullptr    ? fmt::format("{} (CEPH_CONF)", named)
                                                  : "/etc/ceph/ceph.conf";
  const char* const path = options.conf.empty() ? nullptr : options.conf.c_str();
  if (path != nullptr) RETURN_IF_ERROR(CheckConfPath(options.conf));
  if (const int error = rados_conf_read_file(cluster->rados, path); error < 0) {
    return Refused(error == -ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument,
                   fmt::format("cannot read the Ceph configuration {}: {}. Name it as in rados:POOL@/path/to/ceph.conf",
                               where, TextOf(-error)));
  }
  const std::string patience = fmt::format("{}", options.patience_s);
  for (const char* const option : {"client_mount_timeout", "rados_mon_op_timeout", "rados_osd_op_timeout"}) {
    CELL_CHECK_EQ(rados_conf_set(cluster->rados, option, patience.c_str()), 0);
  }
  // Its errors come back from the calls, and belong into this program's log.
  for (const char* const option : {"log_to_stderr", "err_to_stderr"}) {
    (void)rados_conf_set(cluster->rados, option, "false");
  }
  if (const int error = rados_connect(cluster->rados); error < 0) {
    if (error == -ENOENT || error == -EACCES || error == -EPERM) {
      return absl::PermissionDeniedError(
          fmt::format("the Ceph cluster of {} does not let this client in: {}. Does the configuration name its "
                      "monitors (mon_host), and a keyring that this user can read?",
                      where, TextOf(-error)));
    }
    return absl::UnavailableError(
        fmt::format("the monitors of the Ceph cluster of {} do not answer: {}", where, TextOf(-error)));
  }
  if (const int error = rados_ioctx_create(cluster->rados, options.pool.c_str(), &cluster->io); error < 0) {
    if (error != -ENOENT) return cluster->ErrorOf(error, "");
    return absl::NotFoundError(fmt::format("the Ceph cluster of {} has no pool {} (ceph osd pool create {})", where,
                                           options.pool, options.pool));
  }
  return std::unique_ptr<RadosObjectStore>(new RadosObjectStore(std::move(cluster)));
}

absl::Status RadosObjectStore::Update(const std::string& name, const ObjectUpdate& update) {
  const WriteOp op(rados_create_write_op());
  if (update.create) {
    rados_write_op_create(op.get(), LIBRADOS_CREATE_EXCLUSIVE, nullptr);
  } else {
    rados_write_op_assert_exists(op.get());
  }
  if (update.epoch_max.has_value()) {
    const std::string most = EpochText(*update.epoch_max);
    rados_write_op_cmpxattr(op.get(), kEpoch, LIBRADOS_CMPXATTR_OP_GTE, most.data(), most.size());
  }
  for (const auto& [key, value] : update.expected) {
    rados_write_op_omap_cmp2(op.get(), key.data(), LIBRADOS_CMPXATTR_OP_EQ, value.data(), key.size(), value.size(),
                             nullptr);
  }
  for (const std::string& key : update.absent) {  // An entry that does not exist compares like an empty one.
    rados_write_op_omap_cmp2(op.get(), key.data(), LIBRADOS_CMPXATTR_OP_EQ, "", key.size(), 0, nullptr);
  }
  if (update.epoch.has_value() || update.create) {
    const std::string epoch = EpochText(update.epoch.value_or(0));
    rados_write_op_setxattr(op.get(), kEpoch, epoch.data(), epoch.size());
  }
  if (!update.append.empty()) rados_write_op_append(op.get(), update.append.data(), update.append.size());
  if (!update.set.empty()) {
    Texts keys, values;
    for (const auto& [key, value] : update.set) {
      keys.Add(key);
      values.Add(value);
    }
    rados_write_op_omap_set2(op.get(), keys.pointers.data(), values.pointers.data(), keys.lengths.data(),
                             values.lengths.data(), keys.pointers.size());
  }
  if (!update.remove.empty()) {
    Texts keys;
    for (const std::string& key : update.remove) keys.Add(key);
    rados_write_op_omap_rm_keys2(op.get(), keys.pointers.data(), keys.lengths.data(), keys.pointers.size());
  }
  if (update.remove_object) rados_write_op_remove(op.get());
  const int error = rados_write_op_operate2(op.get(), cluster_->io, name.c_str(), nullptr, LIBRADOS_OPERATION_FULL_TRY);
  return error < 0 ? cluster_->ErrorOf(error, name) : absl::OkStatus();
}

absl::StatusOr<ObjectStore::Head> RadosObjectStore::ReadHead(const std::string& name) {
  Head head;
  uint64_t version = 0;  // Of the object when the first of its entries were read.
  int tries = 1;
  for (std::string after;;) {
    const ReadOp op(rados_create_read_op());
    if (version != 0) rados_read_op_assert_version(op.get(), version);
    rados_xattrs_iter_t attributes = nullptr;
    rados_omap_iter_t entries = nullptr;
    unsigned char more = 0;
    int attributes_error = 0, entries_error = 0;
    rados_read_op_getxattrs(op.get(), &attributes, &attributes_error);
    rados_read_op_omap_get_vals2(op.get(), after.c_str(), "", kEntriesAtOnce, &entries, &more, &entries_error);
    rados_completion_t completion = nullptr;
    CELL_CHECK_EQ(rados_aio_create_completion2(nullptr, nullptr, &completion), 0);
    const std::unique_ptr<void, Release<rados_aio_release>> release(completion);
    int error = rados_aio_read_op_operate(op.get(), cluster_->io, completion, name.c_str(), 0);
    if (error == 0) {
      rados_aio_wait_for_complete(completion);
      error = rados_aio_get_return_value(completion);
    }
    const std::unique_ptr<void, Release<rados_getxattrs_end>> end_attributes(attributes);
    const std::unique_ptr<void, Release<rados_omap_get_end>> end_entries(entries);
    if (version != 0 && (error == -ERANGE || error == -EOVERFLOW)) {  // It was changed since. Begin again.
      if (++tries > kReadHeadTries) return cluster_->ErrorOf(-EBUSY, name);
      head = Head();
      version = 0;
      after.clear();
      continue;
    }
    if (error < 0) return cluster_->ErrorOf(error, name);
    if (attributes_error < 0) return cluster_->ErrorOf(attributes_error, name);
    if (entries_error < 0) return cluster_->ErrorOf(entries_error, name);
    version = rados_aio_get_version(completion);
    const char* attribute = nullptr;
    const char* bytes = nullptr;
    size_t size = 0;
    std::optional<uint32_t> epoch;
    while (rados_getxattrs_next(attributes, &attribute, &bytes, &size) == 0 && attribute != nullptr) {
      if (std::strcmp(attribute, kEpoch) == 0) epoch = ParseEpoch(std::string(bytes, size));
    }
    if (!epoch.has_value()) {
      return cluster_->Damaged(name,
                               fmt::format("its attribute \"{}\" is missing, or is no number of ten digits", kEpoch));
    }
    head.epoch = *epoch;
    char* key = nullptr;
    char* value = nullptr;
    size_t key_bytes = 0, value_bytes = 0;
    while (rados_omap_get_next2(entries, &key, &value, &key_bytes, &value_bytes) == 0 && key != nullptr) {
      after.assign(key, key_bytes);
      head.entries[after] = std::string(value, value_bytes);
    }
    if (head.entries.size() > kObjectEntriesMax) {
      return cluster_->Damaged(name, fmt::format("it has more than {} entries", kObjectEntriesMax));
    }
    if (more == 0) return head;
  }
}

absl::StatusOr<size_t> RadosObjectStore::Read(const std::string& name, uint64_t offset, MutableBytes to) {
  CELL_CHECK_LE(to.size(), kObjectReadMax);
  const int got = rados_read(cluster_->io, name.c_str(), reinterpret_cast<char*>(to.data()), to.size(), offset);
  if (got < 0) return cluster_->ErrorOf(got, name);
  return static_cast<size_t>(got);
}

absl::StatusOr<uint64_t> RadosObjectStore::Size(const std::string& name) {
  uint64_t size = 0;
  time_t changed = 0;
  const int error = rados_stat(cluster_->io, name.c_str(), &size, &changed);
  if (error < 0) return cluster_->ErrorOf(error, name);
  return size;
}

absl::StatusOr<std::vector<std::string>> RadosObjectStore::List() {
  rados_list_ctx_t list = nullptr;
  if (const int error = rados_nobjects_list_open(cluster_->io, &list); error < 0) {
    return cluster_->ErrorOf(error, "(all)");
  }
  const std::unique_ptr<void, Release<rados_nobjects_list_close>> close(list);
  std::vector<std::string> names;
  for (;;) {
    const char* entry = nullptr;
    const int error = rados_nobjects_list_next(list, &entry, nullptr, nullptr);
    if (error == -ENOENT) return names;  // There are no more.
    if (error < 0) return cluster_->ErrorOf(error, "(all)");
    names.emplace_back(entry);
  }
}

}  // namespace cell
