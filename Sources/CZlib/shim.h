#pragma once

#include <stdint.h>
#include <zlib.h>

/// Compresses with a preset dictionary; the length, or 0 if there is no memory or place for it.
static inline size_t tenure_deflate(const uint8_t *input, size_t length, const uint8_t *dictionary,
                                    size_t dictionary_length, uint8_t *output, size_t capacity) {
  z_stream stream = {0};
  if (deflateInit(&stream, Z_DEFAULT_COMPRESSION) != Z_OK) return 0;
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

/// Decompresses exactly `length` bytes; whether they were that many, undamaged, and compressed with
/// this dictionary.
static inline int tenure_inflate(const uint8_t *input, size_t input_length, const uint8_t *dictionary,
                                 size_t dictionary_length, uint8_t *output, size_t length) {
  z_stream stream = {0};
  if (inflateInit(&stream) != Z_OK) return 0;
  stream.next_in = (Bytef *)input;
  stream.avail_in = (uInt)input_length;
  stream.next_out = output;
  stream.avail_out = (uInt)length;
  int is_done = inflate(&stream, Z_FINISH) == Z_NEED_DICT
                && inflateSetDictionary(&stream, dictionary, (uInt)dictionary_length) == Z_OK
                && inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.total_out == length
                && stream.avail_in == 0;
  inflateEnd(&stream);
  return is_done;
}
