// Defines awaitables over a Membership. The coroutine resumes from its Poll.
#pragma once

#include <coroutine>
#include <utility>

#include "cell/cluster/membership.h"

namespace cell {

struct RefreshAwaiter {
  Membership* membership;
  absl::Status status;

  explicit RefreshAwaiter(Membership* membership) : membership(membership) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    membership->Refresh([this, awaiting](const absl::Status& result) {
      status = result;
      awaiting.resume();
    });
  }
  absl::Status await_resume() { return std::move(status); }
};

struct ChangeAwaiter {
  Membership* membership;
  Membership::TableChange change;
  absl::Status status;

  ChangeAwaiter(Membership* membership, Membership::TableChange change)
      : membership(membership), change(std::move(change)) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    membership->Change(std::move(change), [this, awaiting](const absl::Status& result) {
      status = result;
      awaiting.resume();
    });
  }
  absl::Status await_resume() { return std::move(status); }
};

}  // namespace cell
