#include "cell/io/sim/sim_files.h"

#include <algorithm>
#include <set>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/io/net/descriptors.h"
#include "cell/io/sim/sim_fiber.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kSectorBytes = 512;

std::string DirectoryOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

absl::Status NoDescriptor() {
  absl::Status status = absl::UnavailableError("Too many open files");
  MarkOutOfDescriptors(&status);
  return status;
}

absl::Status NoSuch(const std::string& path) { return absl::NotFoundError(fmt::format("{} does not exist", path)); }

}  // namespace

class SimFile : public File {
 public:
  SimFile(SimFiles* host, std::shared_ptr<SimDisk::Content> content, size_t block_bytes)
      : host_(host), generation_(host->generation_), content_(std::move(content)), block_bytes_(block_bytes) {
    ++host_->open_files_;
  }
  ~SimFile() override { --host_->open_files_; }

  absl::Status Append(std::string_view bytes) override {
    if (generation_ != host_->generation_) return absl::UnavailableError("this host has crashed");
    if (absl::Status status = host_->Call(SimFiles::Needs::kRoom); !status.ok()) {
      if (generation_ == host_->generation_) Write(bytes.substr(0, host_->disk_->random_.Below(bytes.size() + 1)));
      return status;
    }
    if (generation_ != host_->generation_) return absl::UnavailableError("this host has crashed");
    Write(bytes);
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    if (generation_ != host_->generation_) return absl::UnavailableError("this host has crashed");
    absl::Status status = host_->Call(SimFiles::Needs::kNothing);
    if (generation_ != host_->generation_) return absl::UnavailableError("this host has crashed");
    // Linux reports an error once, and then considers the pages clean.
    if (!status.ok() && end_ > content_->synced) content_->lost.emplace_back(content_->synced, end_);
    content_->synced = end_;
    return status;
  }

 private:
  void Write(std::string_view bytes) {
    content_->bytes.replace(end_, std::string::npos, bytes);
    end_ = content_->bytes.size();
    content_->bytes.resize(RoundUp(end_, block_bytes_));
    ++content_->stamp.written_ns;
  }

  SimFiles* const host_;
  const uint64_t generation_;
  const std::shared_ptr<SimDisk::Content> content_;
  const size_t block_bytes_;
  size_t end_ = 0;  // End of the appended data.
};

std::unique_ptr<SimFiles> SimDisk::NewHost() { return std::unique_ptr<SimFiles>(new SimFiles(this)); }

std::vector<std::string> SimDisk::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, content] : files_) paths.push_back(path);
  return paths;
}

absl::Status SimFiles::Call(Needs needs) {
  if (SimFiber* const fiber = SimFiber::current(); fiber != nullptr) {
    fiber->Pause(needs == Needs::kDirectory || needs == Needs::kOpenDirectory ? directory_slowness_ : 1);
  }
  ++calls_;
  const bool room = needs == Needs::kRoom || needs == Needs::kDescriptorAndRoom;
  if (full_ && room) return absl::ResourceExhaustedError("No space left on device");
  const bool descriptor =
      needs == Needs::kDescriptor || needs == Needs::kDescriptorAndRoom || needs == Needs::kDirectory;
  if (descriptors_gone_ && descriptor) return NoDescriptor();
  if (failure_.ok() || fail_in_-- > 0) return absl::OkStatus();
  return std::exchange(failure_, absl::OkStatus());
}

absl::StatusOr<std::unique_ptr<File>> SimFiles::Make(const std::string& path, size_t block_bytes) {
  RETURN_IF_ERROR(Call(Needs::kDescriptorAndRoom));
  if (disk_->files_.contains(path)) return absl::AlreadyExistsError(fmt::format("{} already exists", path));
  if (!disk_->directories_.contains(DirectoryOf(path))) return NoSuch(DirectoryOf(path));
  auto content = std::make_shared<SimDisk::Content>();
  content->writer = this;
  content->stamp.file = ++disk_->made_;
  disk_->files_[path] = content;
  disk_->changes_.push_back({this, DirectoryOf(path), [disk = disk_, path] { disk->files_.erase(path); }});
  return std::make_unique<SimFile>(this, std::move(content), block_bytes);
}

std::string_view SimFiles::Seen(const SimDisk::Content& content) const {
  const std::string_view all = content.bytes;
  return disk_->cached_ && content.writer != this ? all.substr(0, content.synced) : all;
}

absl::StatusOr<size_t> SimFiles::Read(const std::string& path, uint64_t offset, MutableBytes to) {
  RETURN_IF_ERROR(Call(Needs::kDescriptor));
  const auto it = disk_->files_.find(path);
  if (it == disk_->files_.end()) return NoSuch(path);
  const std::string_view content = Seen(*it->second);
  return content.copy(reinterpret_cast<char*>(to.data()), to.size(), std::min<uint64_t>(offset, content.size()));
}

absl::StatusOr<std::optional<std::string>> SimFiles::ReadText(const std::string& path) {
  RETURN_IF_ERROR(Call(Needs::kDescriptor));
  const auto it = disk_->files_.find(path);
  if (it == disk_->files_.end()) return std::nullopt;
  return std::string(Seen(*it->second));
}

absl::StatusOr<FileStamp> SimFiles::Stamp(const std::string& path) {
  RETURN_IF_ERROR(Call(Needs::kNothing));
  const auto it = disk_->files_.find(path);
  if (it == disk_->files_.end()) return NoSuch(path);
  return it->second->stamp;
}

absl::StatusOr<uint64_t> SimFiles::Size(const std::string& path) {
  RETURN_IF_ERROR(Call(Needs::kNothing));
  const auto it = disk_->files_.find(path);
  if (it == disk_->files_.end()) return NoSuch(path);
  return Seen(*it->second).size();
}

absl::StatusOr<std::vector<std::string>> SimFiles::List(const std::string& directory) {
  RETURN_IF_ERROR(Call(Needs::kDirectory));
  return ListNow(directory);
}

absl::StatusOr<std::vector<std::string>> SimFiles::ListNow(const std::string& directory) const {
  if (!disk_->directories_.contains(directory)) return NoSuch(directory);
  std::vector<std::string> names;
  const auto add = [&](const std::string& path) {
    if (DirectoryOf(path) == directory && path != directory) names.push_back(path.substr(directory.size() + 1));
  };
  for (const auto& [path, content] : disk_->files_) add(path);
  for (const auto& [path, there] : disk_->directories_) add(path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::unique_ptr<Directory>> SimFiles::Open(const std::string& directory) {
  class Opened : public Directory {
   public:
    Opened(SimFiles* files, std::string path) : files_(files), path_(std::move(path)) {}
    absl::StatusOr<std::vector<std::string>> List() override {
      RETURN_IF_ERROR(files_->Call(Needs::kOpenDirectory));
      return files_->ListNow(path_);
    }

   private:
    SimFiles* const files_;
    const std::string path_;
  };
  RETURN_IF_ERROR(Call(Needs::kDirectory));
  if (!disk_->directories_.contains(directory)) return NoSuch(directory);
  return std::make_unique<Opened>(this, directory);
}

absl::Status SimFiles::MakeDirectory(const std::string& directory) {
  RETURN_IF_ERROR(Call(Needs::kRoom));
  for (std::string path = directory; !path.empty();
       path = path.find('/') != std::string::npos ? DirectoryOf(path) : "") {
    disk_->directories_[path] = true;
  }
  return absl::OkStatus();
}

absl::Status SimFiles::Rename(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(Call(Needs::kNothing));
  const auto it = disk_->files_.find(from);
  if (it == disk_->files_.end()) return NoSuch(from);
  const auto content = it->second;
  const auto old = disk_->files_.find(to);
  const auto replaced = old == disk_->files_.end() ? nullptr : old->second;
  disk_->files_.erase(from);
  disk_->files_[to] = content;
  disk_->changes_.push_back({this, DirectoryOf(to), [disk = disk_, from, to, content, replaced] {
                               disk->files_[from] = content;
                               if (replaced == nullptr) {
                                 disk->files_.erase(to);
                               } else {
                                 disk->files_[to] = replaced;
                               }
                             }});
  return absl::OkStatus();
}

absl::Status SimFiles::Remove(const std::string& path) {
  RETURN_IF_ERROR(Call(Needs::kNothing));
  if (disk_->directories_.contains(path)) return RemoveDirectoryNow(path);
  const auto it = disk_->files_.find(path);
  if (it == disk_->files_.end()) return NoSuch(path);
  disk_->changes_.push_back(
      {this, DirectoryOf(path), [disk = disk_, path, content = it->second] { disk->files_[path] = content; }});
  disk_->files_.erase(it);
  return absl::OkStatus();
}

absl::Status SimFiles::RemoveDirectoryNow(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNow(path));
  if (!names.empty()) return absl::FailedPreconditionError("Directory not empty");
  disk_->directories_.erase(path);
  disk_->changes_.push_back({this, DirectoryOf(path), [disk = disk_, path] { disk->directories_[path] = true; }, path});
  return absl::OkStatus();
}

absl::Status SimFiles::SyncDirectory(const std::string& directory) {
  RETURN_IF_ERROR(Call(Needs::kDirectory));
  std::set<std::string> gone;  // Including all changes in it.
  for (const SimDisk::Change& change : disk_->changes_) {
    if (change.directory == directory && !change.removed.empty()) gone.insert(change.removed);
  }
  std::erase_if(disk_->changes_, [&](const SimDisk::Change& change) {
    return change.directory == directory || gone.contains(change.directory);
  });
  return absl::OkStatus();
}

void SimFiles::Crash() {
  ++generation_;
  failure_ = absl::OkStatus();
  full_ = descriptors_gone_ = false;
  Random& random = disk_->random_;
  for (auto& [path, content] : disk_->files_) {
    if (content->writer != this) continue;
    std::string& bytes = content->bytes;
    bytes.resize(content->synced + random.Below(bytes.size() - content->synced + 1));
    const auto drop = [&](size_t begin, size_t end) {
      for (size_t at = begin; at < std::min(end, bytes.size());) {
        const size_t next = std::min({end, bytes.size(), (at / kSectorBytes + 1) * kSectorBytes});
        if (random.Below(2) == 0)
          std::fill(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(next), 0);
        at = next;
      }
    };
    drop(content->synced, bytes.size());
    for (const auto& [begin, end] : content->lost) drop(begin, end);
    content->synced = bytes.size();
    content->writer = nullptr;
  }
  // Restore the names as they were at some moment.
  size_t first_gone = disk_->changes_.size();
  for (size_t i = 0; i < disk_->changes_.size(); ++i) {
    if (disk_->changes_[i].by == this && random.Below(2) == 0) {
      first_gone = i;
      break;
    }
  }
  for (size_t i = disk_->changes_.size(); i-- > first_gone;) {
    if (disk_->changes_[i].by == this) disk_->changes_[i].undo();
  }
  std::erase_if(disk_->changes_, [this](const SimDisk::Change& change) { return change.by == this; });
}

}  // namespace cell
