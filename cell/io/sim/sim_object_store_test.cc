// Runs the tests of every ObjectStore for the simulated one.
#include "cell/io/sim/sim_object_store.h"

#include <gtest/gtest.h>

#include "cell/io/object/object_store_conformance.h"

namespace cell {
namespace {

// A store of its own.
class OneStore : public ObjectStore {
 public:
  absl::Status Update(const std::string& name, const ObjectUpdate& update) override {
    return store_->Update(name, update);
  }
  absl::StatusOr<Head> ReadHead(const std::string& name) override { return store_->ReadHead(name); }
  absl::StatusOr<size_t> Read(const std::string& name, uint64_t offset, MutableBytes to) override {
    return store_->Read(name, offset, to);
  }
  absl::StatusOr<uint64_t> Size(const std::string& name) override { return store_->Size(name); }
  absl::StatusOr<std::vector<std::string>> List() override { return store_->List(); }

 private:
  SimObjects objects_{1};
  const std::unique_ptr<SimObjectStore> store_ = objects_.NewHost();
};

INSTANTIATE_TEST_SUITE_P(Simulated, ObjectStoreConformance,
                         ::testing::Values([] { return std::make_unique<OneStore>(); }));

}  // namespace
}  // namespace cell
