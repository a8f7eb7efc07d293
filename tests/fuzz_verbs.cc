// libFuzzer: passes any chunks to the part of a verbs connection that needs no device, before and after its handshake,
// on both sides: assembling chunks, counting credits, taking greetings. The rest of the fabric gets its results.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "cell/io/fabric/verbs/verbs_messages.h"
#include "cell/io/net/handshake.h"

namespace {

using namespace cell;

// Returns a nonce that is the same in each run, so that inputs are reproducible.
Nonce NonceOf(uint8_t byte) {
  Nonce nonce;
  nonce.fill(std::byte{byte});
  return nonce;
}

// Runs one side of a connection. `real` is what a correct peer would send next.
template <typename Handshake>
void Feed(Handshake* handshake, std::string real, std::string_view in,
          const std::function<std::string(const std::string&)>& peer) {
  CreditWindow window;
  MessageAssembler assembler;
  while (!in.empty()) {
    const auto step = static_cast<uint8_t>(in[0]);
    in.remove_prefix(1);
    std::string chunk;
    if (step % 4 == 0) {  // A chunk that the peer would send, with some of its bytes changed.
      chunk.resize(sizeof(ChunkHeader));
      Store(reinterpret_cast<std::byte*>(chunk.data()),
            ChunkHeader{MessageType::kHandshake, 0, 0, static_cast<uint32_t>(real.size()), 0, 0, 0});
      chunk += real;
    } else {
      const size_t bytes = std::min<size_t>(in.size(), step % 4 == 1 ? sizeof(ChunkHeader) : step);
      chunk = in.substr(0, bytes);
      in.remove_prefix(bytes);
    }
    if (step % 8 >= 4 && !in.empty() && !chunk.empty()) {
      chunk[static_cast<uint8_t>(in[0]) % chunk.size()] ^= static_cast<char>(step);
      in.remove_prefix(1);
    }
    // In memory of exactly its size, so that overruns are detected.
    const auto copy = std::make_unique<std::byte[]>(chunk.size());
    std::memcpy(copy.get(), chunk.data(), chunk.size());
    MessageAssembler::Message message;
    const MessageAssembler::State state = assembler.Take({copy.get(), chunk.size()}, &message);
    // The connection is broken.
    if (state == MessageAssembler::State::kNonsense || !window.Received(message.header)) return;
    if (message.header.type != MessageType::kCredits) window.Freed(1);
    if (window.ShouldTell()) (void)window.TakeOwed();
    if (state != MessageAssembler::State::kWhole) continue;
    if (message.bytes.size() > kMessageBytesMax) std::abort();
    if (message.header.type != MessageType::kHandshake) {
      // It is not allowed at this point.
      if (message.header.type != MessageType::kCredits && !handshake->done()) return;
      continue;
    }
    std::string answer;
    const bool before = handshake->done();
    const absl::Status taken = handshake->Take(message.bytes, &answer);
    if (before && taken.ok()) std::abort();  // The handshake is over: nothing more is accepted.
    if (taken.ok()) real = peer(answer);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view in(reinterpret_cast<const char*>(data) + 1, size - 1);
  static const auto keys = std::make_shared<const Keyring>(std::vector<Secret>{ClusterSecret(NonceOf(3))});
  ServerHandshake server(keys, NonceOf(1), {Purpose::kVerbs});
  ClientHandshake client(keys.get(), {Role::kClient, "fuzz"}, Purpose::kVerbs, NonceOf(2));
  if (data[0] % 2 == 0) {
    Feed(&server, client.Hello(), in, [&client](const std::string& answer) {
      std::string next;
      (void)client.Take(AsBytes(answer), &next);
      return next;
    });
  } else {
    std::string challenge;
    (void)server.Take(AsBytes(client.Hello()), &challenge);
    Feed(&client, challenge, in, [&server](const std::string& answer) {
      std::string next;
      (void)server.Take(AsBytes(answer), &next);
      return next;
    });
  }
  return 0;
}
