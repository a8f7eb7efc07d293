#include "cell/log/sealed_log_store.h"

#include "cell/base/status_macros.h"
#include "cell/log/record_cipher.h"

namespace cell {

class SealedLogStore::Writer : public LogWriter {
 public:
  Writer(std::unique_ptr<LogWriter> writer, RecordSealer sealer)
      : writer_(std::move(writer)), sealer_(std::move(sealer)) {}

  absl::Status Append(std::string_view bytes) override {
    sealed_.clear();
    RETURN_IF_ERROR(sealer_.Seal(bytes, &sealed_));
    return writer_->Append(sealed_);
  }
  absl::Status Sync() override { return writer_->Sync(); }

 private:
  const std::unique_ptr<LogWriter> writer_;
  RecordSealer sealer_;
  std::string sealed_;
};

absl::StatusOr<std::unique_ptr<LogWriter>> SealedLogStore::Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                                std::string_view first) {
  RecordSealer sealer(keys_.get(), {region, epoch, sequence, /*checkpoint=*/false});
  std::string sealed;
  RETURN_IF_ERROR(sealer.Seal(first, &sealed));
  ASSIGN_OR_RETURN(std::unique_ptr<LogWriter> writer, store_->Open(region, epoch, sequence, sealed));
  return std::make_unique<Writer>(std::move(writer), std::move(sealer));
}

absl::StatusOr<std::unique_ptr<LogWriter>> SealedLogStore::BeginCheckpoint(uint32_t region, uint32_t epoch,
                                                                           uint64_t sequence) {
  ASSIGN_OR_RETURN(std::unique_ptr<LogWriter> writer, store_->BeginCheckpoint(region, epoch, sequence));
  return std::make_unique<Writer>(std::move(writer),
                                  RecordSealer(keys_.get(), {region, epoch, sequence, /*checkpoint=*/true}));
}

}  // namespace cell
