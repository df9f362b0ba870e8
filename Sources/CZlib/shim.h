#pragma once

#include <stdint.h>
#include <zlib.h>

/// Compresses with a preset dictionary; the length, or 0 if there is no memory or place for it.
static inline size_t tenure_deflate(const uint8_t *input, size_t length, const uint8_t *dictionary,
                                    size_t dictionary_length, uint8_t *output, size_t capacity) {
  z_stream stream = {0};
  // The smallest window that holds all, because zlib clears its memory for each stream.
  size_t reach = length + dictionary_length + 512;
  int bits = reach <= 1 << 13 ? 13 : reach <= 1 << 14 ? 14 : 15;
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, bits, bits - 6, Z_DEFAULT_STRATEGY)
      != Z_OK)
    return 0;
  stream.next_in = (Bytef *)input;
  stream.avail_in = (uInt)length;
  stream.next_out = output;
  stream.avail_out = (uInt)capacity;
  int is_done = deflateSetDictionary(&stream, dictionary, (uInt)dictionary_length) == Z_OK
                && deflate(&stream, Z_FINISH) == Z_STREAM_END;
  size_t written = stream.total_out;
  deflateEnd(&stream);
  return is_done ? written : 0;
}

/// Decompresses all of the input; the length, or -1 if it is damaged or was compressed with another
/// dictionary, or -2 if the output has no place for it.
static inline int64_t tenure_inflate(const uint8_t *input, size_t input_length,
                                     const uint8_t *dictionary, size_t dictionary_length,
                                     uint8_t *output, size_t capacity) {
  z_stream stream = {0};
  if (inflateInit(&stream) != Z_OK) return -1;
  stream.next_in = (Bytef *)input;
  stream.avail_in = (uInt)input_length;
  stream.next_out = output;
  stream.avail_out = (uInt)capacity;
  int result = inflate(&stream, Z_FINISH);
  if (result == Z_NEED_DICT
      && inflateSetDictionary(&stream, dictionary, (uInt)dictionary_length) == Z_OK)
    result = inflate(&stream, Z_FINISH);
  int64_t length = result == Z_STREAM_END && stream.avail_in == 0 ? (int64_t)stream.total_out
                   : result == Z_BUF_ERROR && stream.avail_out == 0 ? -2
                                                                    : -1;
  inflateEnd(&stream);
  return length;
}
