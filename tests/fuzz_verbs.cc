// libFuzzer: any chunks to what a verbs connection does with them before and after its handshake, on both sides: chunks
// put together, credits counted, greetings taken. No device is needed: the rest of the fabric is given what comes of it.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "cell/io/fabric/verbs/verbs_messages.h"
#include "cell/io/net/handshake.h"

namespace {

using namespace cell;

// A nonce that is the same in each run, so that inputs are.
Nonce NonceOf(uint8_t byte) {
  Nonce nonce;
  nonce.fill(std::byte{byte});
  return nonce;
}

// One side of a connection. `real`: what a peer that is what it should be would say next.
template <typename Handshake>
void Feed(Handshake* handshake, std::string real, std::string_view in,
          const std::function<std::string(const std::string&)>& peer) {
  CreditWindow window;
  MessageAssembler assembler;
  while (!in.empty()) {
    const auto step = static_cast<uint8_t>(in[0]);
    in.remove_prefix(1);
    std::string chunk;
    if (step % 4 == 0) {  // What the peer would say, by one chunk, with some of its bytes changed.
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
    // In memory of its own size: what is read beyond is seen.
    const auto copy = std::make_unique<std::byte[]>(chunk.size());
    std::memcpy(copy.get(), chunk.data(), chunk.size());
    MessageAssembler::Message message;
    const MessageAssembler::State state = assembler.Take({copy.get(), chunk.size()}, &message);
    if (state == MessageAssembler::State::kNonsense || !window.Received(message.header)) return;  // It is broken.
    if (message.header.type != MessageType::kCredits) window.Freed(1);
    if (window.ShouldTell()) (void)window.TakeOwed();
    if (state != MessageAssembler::State::kWhole) continue;
    if (message.bytes.size() > kMessageBytesMax) std::abort();
    if (message.header.type != MessageType::kHandshake) {
      if (message.header.type != MessageType::kCredits && !handshake->done()) return;  // It has no place there.
      continue;
    }
    std::string answer;
    const bool before = handshake->done();
    const absl::Status taken = handshake->Take(message.bytes, &answer);
    if (before && taken.ok()) std::abort();  // It is over: nothing more is taken.
    if (taken.ok()) real = peer(answer);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view in(reinterpret_cast<const char*>(data) + 1, size - 1);
  ServerHandshake server("secret", NonceOf(1), {Purpose::kVerbs});
  ClientHandshake client("secret", Purpose::kVerbs, NonceOf(2));
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
