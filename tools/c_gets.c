// Measures gets by the C API: one after the other, or so many in flight. What measure_python.py compares Python with.
//
//   c_gets CLUSTER KEYS SECONDS IN_FLIGHT     prints gets per second; the keys are key000000 and so on
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cell/c/cell.h"

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static cell_future* begin(cell_client* client, unsigned long long* random, int keys) {
  char key[32];
  *random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
  const int size = snprintf(key, sizeof(key), "key%06d", (int)((*random >> 33) % (unsigned long long)keys));
  return cell_get(client, NULL, cell_make_bytes(key, (size_t)size), NULL);
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: c_gets CLUSTER KEYS SECONDS IN_FLIGHT\n");
    return 2;
  }
  const int keys = atoi(argv[2]), in_flight = atoi(argv[4]);
  const double seconds = atof(argv[3]);
  if (keys < 1 || in_flight < 1 || in_flight > 4096 || !(seconds > 0)) return 2;
  cell_options* const options = cell_options_new();
  cell_options_set(options, "cluster", argv[1]);
  cell_client* const client = cell_open(options);
  cell_options_free(options);
  if (cell_client_code(client) != CELL_OK) {
    fprintf(stderr, "c_gets: %s\n", cell_client_message(client));
    return 1;
  }
  static cell_future* futures[4096];
  unsigned long long random = 1, gets = 0;
  for (int i = 0; i < in_flight; ++i) futures[i] = begin(client, &random, keys);
  const double began = now();
  while ((gets & 63) != 0 || now() < began + seconds) {
    cell_future** const oldest = &futures[gets % (unsigned long long)in_flight];
    if (cell_wait(*oldest) != CELL_OK || !cell_found(*oldest)) {
      fprintf(stderr, "c_gets: %s\n", cell_message(*oldest));
      return 1;
    }
    cell_future_free(*oldest);
    *oldest = begin(client, &random, keys);
    ++gets;
  }
  printf("%.0f\n", (double)gets / (now() - began));
  for (int i = 0; i < in_flight; ++i) cell_future_free(futures[i]);
  cell_close(client);
  return 0;
}
