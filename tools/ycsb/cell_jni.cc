// The native methods of NativeClient.java, over the C API. Their errors are CellExceptions; no C++ exception leaves
// them.
//
// A handle is a cell_client*, or 0 once it is closed. NativeClient.java never passes one that was closed, nor one to
// two threads at a time. Everything else is checked here.
#include <jni.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "cell/c/cell.h"

namespace {

constexpr jint kJniVersion = JNI_VERSION_10;
constexpr const char* kClientClass = "cell/ycsb/NativeClient";
constexpr const char* kExceptionClass = "cell/ycsb/CellException";
// The most bytes that a scan returns: an array of Java has at most 2^31 - 1 elements, and its caller needs memory, too.
constexpr size_t kScanBytesMax = size_t{1} << 30;

// Set by JNI_OnLoad before any method runs.
jclass exception_class = nullptr;
jmethodID make_exception = nullptr;

struct FreeFuture {
  void operator()(cell_future* future) const { cell_future_free(future); }
};
using Future = std::unique_ptr<cell_future, FreeFuture>;

// Makes a CellException pending, which Java throws once the method returns.
void Throw(JNIEnv* env, cell_code code, std::string message) {
  if (env->ExceptionCheck() != JNI_FALSE) return;
  // NewStringUTF takes a kind of UTF-8 of its own.
  std::replace_if(
      message.begin(), message.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  jstring const text = env->NewStringUTF(message.c_str());
  if (text == nullptr) return;  // There is no memory left, and Java has an error pending that says so.
  jobject const exception = env->NewObject(exception_class, make_exception, static_cast<jint>(code), text);
  if (exception != nullptr) env->Throw(static_cast<jthrowable>(exception));
}

cell_client* ClientOf(JNIEnv* env, jlong handle) {
  if (handle == 0) Throw(env, CELL_CANCELLED, "the client is closed");
  return reinterpret_cast<cell_client*>(handle);
}

// A copy of the bytes of a Java array.
class Bytes {
 public:
  // Leaves an exception pending if it does not work.
  Bytes(JNIEnv* env, jbyteArray array) {
    if (array == nullptr) {
      Throw(env, CELL_INVALID_ARGUMENT, "an argument is null");
      return;
    }
    const jsize size = env->GetArrayLength(array);
    if (static_cast<size_t>(size) > sizeof(inside_)) {
      outside_.reset(new (std::nothrow) jbyte[static_cast<size_t>(size)]);
      if (outside_ == nullptr) {
        Throw(env, CELL_RESOURCE_EXHAUSTED, "there is no memory for an argument");
        return;
      }
    }
    jbyte* const data = outside_ == nullptr ? inside_ : outside_.get();
    env->GetByteArrayRegion(array, 0, size, data);
    bytes_ = cell_make_bytes(data, static_cast<size_t>(size));
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  bool ok() const { return bytes_.data != nullptr; }
  cell_bytes get() const { return bytes_; }

 private:
  jbyte inside_[2048];
  std::unique_ptr<jbyte[]> outside_;
  cell_bytes bytes_ = {};
};

// Waits for an operation. Returns false, with an exception pending, if it failed.
bool Wait(JNIEnv* env, const Future& future) {
  const cell_code code = cell_wait(future.get());
  if (code == CELL_OK) return true;
  Throw(env, code, std::string(cell_code_name(code)) + ": " + cell_message(future.get()));
  return false;
}

// Sets the options, which are names and values by turns. Returns false, with an exception pending, if one cannot be.
bool SetOptions(JNIEnv* env, jobjectArray texts, cell_options* options) {
  const jsize count = env->GetArrayLength(texts);
  for (jsize i = 0; i + 1 < count; i += 2) {
    std::string name_and_value[2];
    for (jsize part = 0; part < 2; ++part) {
      auto* const text = static_cast<jstring>(env->GetObjectArrayElement(texts, i + part));
      const char* const chars = text == nullptr ? nullptr : env->GetStringUTFChars(text, nullptr);
      if (chars == nullptr) {
        Throw(env, CELL_INVALID_ARGUMENT, "an option is null");
        return false;
      }
      name_and_value[part] = chars;
      env->ReleaseStringUTFChars(text, chars);
      env->DeleteLocalRef(text);
    }
    const auto& [name, value] = name_and_value;
    const cell_code code = cell_options_set(options, name.c_str(), value.c_str());
    if (code == CELL_OK) continue;
    std::string message = code == CELL_NOT_FOUND ? "there is no option cell." : "this value is not possible: cell.";
    message.append(name);
    if (code != CELL_NOT_FOUND) message.append("=").append(value);
    Throw(env, CELL_INVALID_ARGUMENT, message);
    return false;
  }
  return true;
}

jlong Open(JNIEnv* env, jclass /*its_class*/, jobjectArray texts) {
  if (texts == nullptr) {
    Throw(env, CELL_INVALID_ARGUMENT, "the options are null");
    return 0;
  }
  const std::unique_ptr<cell_options, decltype(&cell_options_free)> options(cell_options_new(), &cell_options_free);
  if (!SetOptions(env, texts, options.get())) return 0;
  cell_client* const client = cell_open(options.get());
  const cell_code code = cell_client_code(client);
  if (code == CELL_OK) return reinterpret_cast<jlong>(client);
  Throw(env, code, cell_client_message(client));
  cell_close(client);
  return 0;
}

void Close(JNIEnv* /*env*/, jclass /*its_class*/, jlong handle) { cell_close(reinterpret_cast<cell_client*>(handle)); }

// Returns null if there is no such key. `stamp` is null, or an array for the stamp.
jbyteArray Get(JNIEnv* env, jclass /*its_class*/, jlong handle, jbyteArray key_array, jlongArray stamp) {
  cell_client* const client = ClientOf(env, handle);
  if (client == nullptr) return nullptr;
  const Bytes key(env, key_array);
  if (!key.ok()) return nullptr;
  const Future future(stamp == nullptr ? cell_get(client, nullptr, key.get(), nullptr)
                                       : cell_get_with_stamp(client, key.get(), nullptr));
  if (!Wait(env, future) || cell_found(future.get()) == 0) return nullptr;
  const cell_bytes value = cell_value(future.get());
  const auto size = static_cast<jsize>(value.size);  // At most 1 MB.
  jbyteArray const array = env->NewByteArray(size);
  if (array == nullptr) return nullptr;
  env->SetByteArrayRegion(array, 0, size, static_cast<const jbyte*>(value.data));
  if (stamp != nullptr) {
    const auto number = static_cast<jlong>(cell_stamp(future.get()));
    env->SetLongArrayRegion(stamp, 0, 1, &number);
  }
  return array;
}

// Returns whether it was written.
jboolean Put(JNIEnv* env, jclass /*its_class*/, jlong handle, jbyteArray key_array, jbyteArray value_array,
             jboolean if_stamp, jlong stamp) {
  cell_client* const client = ClientOf(env, handle);
  if (client == nullptr) return JNI_FALSE;
  const Bytes key(env, key_array);
  if (!key.ok()) return JNI_FALSE;
  const Bytes value(env, value_array);
  if (!value.ok()) return JNI_FALSE;
  cell_write write = {};
  write.size = sizeof(write);
  write.condition = if_stamp != JNI_FALSE ? CELL_IF_STAMP : CELL_ALWAYS;
  write.expected_stamp = if_stamp != JNI_FALSE ? static_cast<uint64_t>(stamp) : 0;
  const Future future(cell_put(client, nullptr, key.get(), value.get(), &write, nullptr));
  return Wait(env, future) && cell_applied(future.get()) != 0 ? JNI_TRUE : JNI_FALSE;
}

// Returns whether the key was there.
jboolean Delete(JNIEnv* env, jclass /*its_class*/, jlong handle, jbyteArray key_array) {
  cell_client* const client = ClientOf(env, handle);
  if (client == nullptr) return JNI_FALSE;
  const Bytes key(env, key_array);
  if (!key.ok()) return JNI_FALSE;
  const Future future(cell_delete(client, nullptr, key.get(), nullptr, nullptr));
  return Wait(env, future) && cell_found(future.get()) != 0 ? JNI_TRUE : JNI_FALSE;
}

// Packs the pairs of batches into an array of `size` bytes, as NativeClient.scan describes.
jbyteArray Pack(JNIEnv* env, const std::vector<Future>& batches, size_t size) {
  jbyteArray const array = env->NewByteArray(static_cast<jsize>(size));
  if (array == nullptr || size == 0) return array;
  // The array's own memory, so that nothing is copied twice. Until it is released, no other function of JNI is called.
  auto* const memory = static_cast<char*>(env->GetPrimitiveArrayCritical(array, nullptr));
  if (memory == nullptr) {
    Throw(env, CELL_RESOURCE_EXHAUSTED, "there is no memory for what a scan returns");
    return nullptr;
  }
  char* to = memory;
  const auto add = [&to](const void* data, size_t bytes) {
    if (bytes > 0) std::memcpy(to, data, bytes);
    to += bytes;
  };
  for (const Future& batch : batches) {
    for (size_t i = 0; i < cell_pairs(batch.get()); ++i) {
      const cell_pair pair = cell_pair_at(batch.get(), i);
      const uint32_t sizes[2] = {static_cast<uint32_t>(pair.key.size), static_cast<uint32_t>(pair.value.size)};
      add(sizes, sizeof(sizes));
      add(pair.key.data, pair.key.size);
      add(pair.value.data, pair.value.size);
    }
  }
  env->ReleasePrimitiveArrayCritical(array, memory, 0);
  return array;
}

jbyteArray Scan(JNIEnv* env, jclass /*its_class*/, jlong handle, jbyteArray from_array, jbyteArray to_array,
                jint count) {
  cell_client* const client = ClientOf(env, handle);
  if (client == nullptr) return nullptr;
  const Bytes from(env, from_array);
  if (!from.ok()) return nullptr;
  const Bytes to(env, to_array);
  if (!to.ok()) return nullptr;
  if (count < 0) {
    Throw(env, CELL_INVALID_ARGUMENT, "a scan cannot have fewer than 0 pairs");
    return nullptr;
  }
  std::vector<Future> batches;
  size_t bytes = 0;
  if (count > 0) {
    cell_range range = {};
    range.size = sizeof(range);
    range.from = from.get();
    range.to = to.get();
    range.limit = static_cast<uint64_t>(count);
    const std::unique_ptr<cell_scan, decltype(&cell_scan_free)> scan(cell_scan_new(client, &range, nullptr),
                                                                     &cell_scan_free);
    for (size_t left = range.limit; left > 0;) {
      Future batch(cell_scan_next(scan.get()));
      if (!Wait(env, batch)) return nullptr;
      const size_t pairs = cell_pairs(batch.get());
      if (pairs == 0) break;
      for (size_t i = 0; i < pairs; ++i) {
        const cell_pair pair = cell_pair_at(batch.get(), i);
        bytes += 2 * sizeof(uint32_t) + pair.key.size + pair.value.size;
      }
      if (bytes > kScanBytesMax) {
        Throw(env, CELL_RESOURCE_EXHAUSTED, "a scan has more than 1 GB: scan fewer pairs at a time");
        return nullptr;
      }
      left -= std::min(left, pairs);
      batches.push_back(std::move(batch));
    }
  }
  return Pack(env, batches, bytes);
}

template <typename Function>
JNINativeMethod Method(const char* name, const char* signature, Function* function) {
  return {const_cast<char*>(name), const_cast<char*>(signature), reinterpret_cast<void*>(function)};
}

}  // namespace

// Java calls this when it loads the library.
extern "C" JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* machine, void* /*reserved*/) {
  JNIEnv* env = nullptr;
  if (machine->GetEnv(reinterpret_cast<void**>(&env), kJniVersion) != JNI_OK) return JNI_ERR;
  jclass const found = env->FindClass(kExceptionClass);
  if (found == nullptr) return JNI_ERR;
  exception_class = static_cast<jclass>(env->NewGlobalRef(found));
  if (exception_class == nullptr) return JNI_ERR;
  make_exception = env->GetMethodID(exception_class, "<init>", "(ILjava/lang/String;)V");
  if (make_exception == nullptr) return JNI_ERR;
  jclass const client = env->FindClass(kClientClass);
  if (client == nullptr) return JNI_ERR;
  const JNINativeMethod methods[] = {
      Method("open", "([Ljava/lang/String;)J", &Open),
      Method("close", "(J)V", &Close),
      Method("get", "(J[B[J)[B", &Get),
      Method("put", "(J[B[BZJ)Z", &Put),
      Method("delete", "(J[B)Z", &Delete),
      Method("scan", "(J[B[BI)[B", &Scan),
  };
  if (env->RegisterNatives(client, methods, std::size(methods)) != JNI_OK) return JNI_ERR;
  cell_log_to_standard_error();  // YCSB writes its results to standard output.
  return kJniVersion;
}
