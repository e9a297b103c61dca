/* zlib streams and CRC-32, for PNG files, and files of given bytes. */
#include <string.h>

#include "files.h"

#if HEED_ZIP
#include <zlib.h>
#endif

heed_status heed__save_bytes(heed_context *ctx, const char *path, const char *data, size_t bytes) {
  heed__writer writer;
  heed_status status = heed__writer_begin(&writer, ctx, path);
  if (status != HEED_OK) return status;
  status = heed__writer_check_space(&writer, (double)bytes);
  if (status == HEED_OK) status = heed__writer_put(&writer, data, bytes);
  return heed__writer_end(&writer, status);
}

/* ---- Stored blocks (RFC 1950 and 1951) ---- */

enum { STORED_BLOCK = 0xffff, STORED_HEADER = 5, STREAM_BYTES = 2 + 4 };

size_t heed__zlib_bound(size_t bytes) {
  const size_t stored = (bytes / STORED_BLOCK + 1) * STORED_HEADER;
  /* compressBound of zlib adds bytes / 4096 + bytes / 16384 + bytes / 2^25 + 13. */
  const size_t extra = stored + bytes / 2048 + STREAM_BYTES + 64;
  return bytes > SIZE_MAX - extra ? 0 : bytes + extra;
}

static uint32_t adler32_of(const unsigned char *data, size_t bytes) {
  uint32_t a = 1, b = 0;
  for (size_t i = 0; i < bytes; i++) {
    a = (a + data[i]) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

static size_t store_stream(const char *data, size_t bytes, char *out) {
  const uint32_t sum = adler32_of((const unsigned char *)data, bytes);
  unsigned char *p = (unsigned char *)out;
  *p++ = 0x78;
  *p++ = 0x01;
  for (bool last = false; !last;) {
    const size_t n = bytes < STORED_BLOCK ? bytes : STORED_BLOCK;
    last = n == bytes;
    *p++ = last;
    *p++ = (unsigned char)(n & 0xff);
    *p++ = (unsigned char)(n >> 8);
    *p++ = (unsigned char)(~n & 0xff);
    *p++ = (unsigned char)(~n >> 8 & 0xff);
    if (n > 0) memcpy(p, data, n);
    p += n;
    data += n;
    bytes -= n;
  }
  for (int shift = 24; shift >= 0; shift -= 8) *p++ = (unsigned char)(sum >> shift & 0xff);
  return (size_t)(p - (unsigned char *)out);
}

size_t heed__zlib_compress(const char *data, size_t bytes, char *out, size_t capacity) {
#if HEED_ZIP
  if (bytes < (uLong)-1 / 2 && compressBound((uLong)bytes) <= capacity) {
    uLongf length = (uLongf)capacity;
    if (compress2((Bytef *)out, &length, (const Bytef *)data, (uLong)bytes, 6) == Z_OK) return length;
  }
#endif
  (void)capacity;
  return store_stream(data, bytes, out);
}

uint32_t heed__crc32(const char *data, size_t bytes) {
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < bytes; i++) {
    crc ^= (unsigned char)data[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
  }
  return ~crc;
}
