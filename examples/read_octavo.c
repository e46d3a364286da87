/* Reads a file of quantized tensors (octavo's, docs/numerics/layout.md, version 1) and gives their
   values as float. One file of C99 without a library, for other languages to be written after:

     cc -o read_octavo read_octavo.c -lm
     ./read_octavo x.safetensors             names, shapes, and the first values of each tensor
     ./read_octavo x.safetensors NAME        all values of one, as floats of this machine, to stdout

   It reads the rowwise copy. Little-endian machines. What it does not know it refuses. */
#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names come from the file: what a terminal would obey is shown as a question mark. */
static void show(FILE *to, const char *text, size_t most) {
  for (; *text != 0 && most > 0; ++text, --most)
    putc((unsigned char)*text < 32 || *text == 127 ? '?' : *text, to);
}
static void die(const char *what, const char *which) {
  fprintf(stderr, "read_octavo: %s '", what);
  show(stderr, which, 80);
  fputs("'\n", stderr);
  exit(1);
}
/* malloc and realloc that do not return without memory. */
static void *memory(void *before, uint64_t bytes) {
  void *out = bytes < SIZE_MAX ? realloc(before, (size_t)bytes + 1) : NULL;
  if (out == NULL) die("no memory for", "the file");
  return out;
}

/* The safetensors file: eight bytes of length, JSON, data. */
typedef struct {
  char *name, *value; /* of the metadata */
} Entry;
typedef struct {
  char *name;
  uint64_t begin, end; /* of the data */
} Stored;
typedef struct {
  unsigned char *data;
  uint64_t bytes;
  Entry *entries;
  size_t entry_count;
  Stored *tensors;
  size_t tensor_count;
} File;

/* A reader of the JSON that headers have: objects, arrays, strings and whole numbers. */
typedef struct {
  const char *at, *end;
} Json;

static void skip_space(Json *j) {
  while (j->at < j->end && isspace((unsigned char)*j->at)) ++j->at;
}
static int take(Json *j, char c) {
  skip_space(j);
  return j->at < j->end && *j->at == c && ++j->at != NULL;
}
static void want(Json *j, char c) {
  const char text[2] = {c, 0};
  if (!take(j, c)) die("the header lacks a", text);
}
static char *take_string(Json *j) {
  static const char kLetters[] = "ntrbf", kMeaning[] = "\n\t\r\b\f";
  want(j, '"');
  const char *end = j->at; /* of the string: memory is taken for that, not for all that follows */
  while (end < j->end && *end != '"') end += *end == '\\' && end + 1 < j->end ? 2 : 1;
  char *out = memory(NULL, (uint64_t)(end - j->at)), *to = out;
  while (j->at < j->end && *j->at != '"') {
    char c = *j->at++;
    if (c == '\\') {
      if (j->at >= j->end) break;
      c = *j->at++;
      if (c == 'u') die("the header has an escape that this reader does not know:", "\\u");
      const char *letter = c != 0 ? strchr(kLetters, c) : NULL;
      if (letter != NULL) c = kMeaning[letter - kLetters];
    }
    *to++ = c;
  }
  *to = 0;
  want(j, '"');
  return out;
}
static uint64_t take_number(Json *j) {
  skip_space(j);
  uint64_t out = 0;
  int digits = 0;
  for (; j->at < j->end && isdigit((unsigned char)*j->at) && digits < 19; ++digits)
    out = out * 10 + (uint64_t)(*j->at++ - '0');
  if (digits == 0) die("the header lacks a number at", j->at < j->end ? j->at : "its end");
  return out;
}
static void take_tensor(Json *j, File *file, char *name) {
  Stored tensor = {name, 0, 0};
  want(j, '{');
  do {
    char *key = take_string(j);
    want(j, ':');
    if (strcmp(key, "dtype") == 0) {
      free(take_string(j)); /* the tensor's own line says more */
    } else {
      uint64_t numbers[64];
      size_t count = 0;
      want(j, '[');
      if (!take(j, ']')) {
        do {
          if (count == 64) die("too many dimensions of", name);
          numbers[count++] = take_number(j);
        } while (take(j, ','));
        want(j, ']');
      }
      const int offsets = strcmp(key, "data_offsets") == 0;
      if (offsets && count != 2) die("expected two offsets of", name);
      if (offsets) tensor.begin = numbers[0], tensor.end = numbers[1];
    }
    free(key);
  } while (take(j, ','));
  want(j, '}');
  if (tensor.begin > tensor.end || tensor.end > file->bytes) die("data beyond the file of", name);
  file->tensors = memory(file->tensors, (file->tensor_count + 1) * sizeof *file->tensors);
  file->tensors[file->tensor_count++] = tensor;
}
static File read_file(const char *path) {
  File file = {0};
  FILE *in = fopen(path, "rb");
  unsigned char length[8];
  if (in == NULL || fread(length, 1, 8, in) != 8) die("cannot read", path);
  uint64_t header = 0;
  for (int i = 7; i >= 0; --i) header = header << 8 | length[i];
  if (header > 100000000) die("no safetensors file:", path);
  char *text = memory(NULL, header);
  if (fread(text, 1, header, in) != header) die("a header that ends early in", path);
  const int found_end = fseek(in, 0, SEEK_END) == 0;
  const long end = ftell(in);
  if (!found_end || end < (long)(8 + header)) die("no file that can be read twice:", path);
  file.bytes = (uint64_t)end - 8 - header;
  file.data = memory(NULL, file.bytes);
  if (fseek(in, (long)(8 + header), SEEK_SET) != 0 ||
      fread(file.data, 1, file.bytes, in) != file.bytes)
    die("cannot read", path);
  fclose(in);
  Json j = {text, text + header};
  want(&j, '{');
  if (take(&j, '}')) return file;
  do {
    char *name = take_string(&j);
    want(&j, ':');
    const int is_tensor = strcmp(name, "__metadata__") != 0;
    if (is_tensor) take_tensor(&j, &file, name);
    else want(&j, '{');
    if (is_tensor || take(&j, '}')) continue;
    do {
      Entry entry = {take_string(&j), NULL};
      want(&j, ':');
      entry.value = take_string(&j);
      file.entries = memory(file.entries, (file.entry_count + 1) * sizeof *file.entries);
      file.entries[file.entry_count++] = entry;
    } while (take(&j, ','));
    want(&j, '}');
  } while (take(&j, ','));
  want(&j, '}');
  return file;
}
static const char *metadata_of(const File *file, const char *name) {
  for (size_t i = 0; i < file->entry_count; ++i)
    if (strcmp(file->entries[i].name, name) == 0) return file->entries[i].value;
  return NULL;
}
static const Stored *find(const File *file, const char *name, const char *end) {
  size_t length = strlen(name);
  for (size_t i = 0; i < file->tensor_count; ++i)
    if (strncmp(file->tensors[i].name, name, length) == 0 &&
        strcmp(file->tensors[i].name + length, end) == 0)
      return &file->tensors[i];
  return NULL;
}

/* What codes mean. */

typedef struct {
  int exponent, mantissa, bias; /* bits of the fields, and the bias */
  int is_signed, has_inf, integer, no_zero;
  enum { NAN_NONE, NAN_IEEE, NAN_ALL_ONES, NAN_NEGATIVE_ZERO } nan;
} Format;

static int format_bits(const Format *f) { return f->is_signed + f->exponent + f->mantissa; }

/* mxint8, int8, int4, or e<E>m<M>[b<bias>][fn|fnuz|fnu] (docs/numerics/formats.md). */
static Format parse_format(const char *name) {
  Format f = {0, 7, 0, 1, 0, 1, 0, NAN_NONE};
  if (strcmp(name, "mxint8") == 0) return f;
  f.bias = -6;
  if (strcmp(name, "int8") == 0) return f;
  f.mantissa = 3;
  f.bias = -2;
  if (strcmp(name, "int4") == 0) return f;
  int used = 0, bias = 0, has_bias = 0;
  if (sscanf(name, "e%3dm%3d%n", &f.exponent, &f.mantissa, &used) != 2 || f.exponent < 0 ||
      f.exponent > 11 || f.mantissa < 0 || f.mantissa > 15)
    die("this is no format:", name);
  const char *rest = name + used;
  if (*rest == 'b') {
    if (sscanf(rest + 1, "%5d%n", &bias, &used) != 1 || bias < -1100 || bias > 1100)
      die("this is no format:", name);
    has_bias = 1;
    rest += 1 + used;
  }
  const int fnuz = strcmp(rest, "fnuz") == 0, fnu = strcmp(rest, "fnu") == 0;
  const int finite = fnuz || fnu || strcmp(rest, "fn") == 0;
  if (!finite && *rest != 0) die("this is no format:", name);
  f.integer = 0;
  f.is_signed = !fnu;
  const int half = f.exponent > 0 ? 1 << (f.exponent - 1) : 0;
  f.bias = has_bias ? bias : f.exponent == 0 ? 0 : fnuz ? half : half - 1;
  if (f.exponent > 0) {
    f.has_inf = !finite;
    f.nan = !finite ? NAN_IEEE : fnuz ? NAN_NEGATIVE_ZERO
                      : format_bits(&f) >= 8 ? NAN_ALL_ONES : NAN_NONE;
  }
  f.no_zero = fnu && f.mantissa == 0;
  if (format_bits(&f) < 2 || format_bits(&f) > 16)
    die("this reader has formats of 2 to 16 bits:", name);
  return f;
}
static double decode(const Format *f, uint32_t code) {
  const uint32_t magnitude = (1u << (f->exponent + f->mantissa)) - 1;
  const uint32_t field = code & magnitude;
  const int negative = f->is_signed && (code & (magnitude + 1)) != 0;
  if (f->integer || f->exponent == 0) {
    const double unit = ldexp(1.0, 1 - f->bias - f->mantissa);
    if (f->integer) return ((double)field - (negative ? (double)magnitude + 1 : 0)) * unit;
    return negative ? -(field * unit) : field * unit;
  }
  const uint32_t top = ((1u << f->exponent) - 1) << f->mantissa;
  if ((f->nan == NAN_IEEE && field > top) || (f->nan == NAN_ALL_ONES && field == magnitude) ||
      (f->nan == NAN_NEGATIVE_ZERO && negative && field == 0))
    return NAN;
  if (f->has_inf && field == top) return negative ? -INFINITY : INFINITY;
  const int exponent = (int)(field >> f->mantissa);
  const int normal = exponent > 0 || f->no_zero;
  const double digits = (double)(field & ((1u << f->mantissa) - 1));
  const double value = ldexp(digits + (normal ? (double)(1u << f->mantissa) : 0),
                             (normal ? exponent : 1) - f->bias - f->mantissa);
  return negative ? -value : value;
}

/* A tensor: what its line in the metadata says, its codes and its scales. */

typedef struct {
  int rank;
  uint64_t sizes[8];
  Format format;
  uint64_t tile_rows, tile_cols; /* 0: the whole extent */
  char scale[16];
  int packed;
} Tensor;

static Tensor parse_tensor(const char *name, const char *line) {
  Tensor t = {0};
  t.packed = 1;
  char *copy = memory(NULL, strlen(line)), *word;
  strcpy(copy, line);
  word = strtok(copy, " ");
  if (word == NULL) die("the metadata say nothing of", name);
  if (strcmp(word, "scalar") != 0)
    for (char *at = word; *at != 0;) {
      if (t.rank == 8 || !isdigit((unsigned char)*at)) die("a shape that is none, of", name);
      t.sizes[t.rank++] = strtoull(at, &at, 10);
      if (*at == 'x') ++at;
    }
  (void)strtok(NULL, " "); /* the type that the values had */
  int has_format = 0;
  while ((word = strtok(NULL, " ")) != NULL) {
    char *value = strchr(word, '=');
    if (value == NULL) die("expected key=value, got", word);
    *value++ = 0;
    if (strcmp(word, "format") == 0) {
      t.format = parse_format(value);
      has_format = 1;
    } else if (strcmp(word, "tile") == 0) {
      const char *cross = strchr(value, 'x');
      if (cross == NULL) die("expected a tile, got", value);
      t.tile_rows = strtoull(value, NULL, 10), t.tile_cols = strtoull(cross + 1, NULL, 10);
    } else if (strcmp(word, "scale") == 0) {
      strncpy(t.scale, value, sizeof t.scale - 1);
    } else if (strcmp(word, "packed") == 0) {
      t.packed = strcmp(value, "0") != 0;
    } else if (strcmp(word, "axis") == 0 || strncmp(word, "hadamard", 8) == 0 ||
               (strcmp(word, "rowwise") == 0 && strcmp(value, "0") == 0)) {
      die("this reader does not have what the tensor needs:", word);
    } /* the others say how the codes were made, not what they mean */
  }
  if (!has_format || t.scale[0] == 0) die("no format and scale for", name);
  free(copy);
  return t;
}
static double scale_at(const char *kind, const unsigned char *data, uint64_t i) {
  uint16_t half;
  float value;
  if (strcmp(kind, "f32") == 0) return memcpy(&value, data + 4 * i, 4), value;
  if (strcmp(kind, "e8m0") == 0) return data[i] == 255 ? NAN : ldexp(1.0, data[i] - 127);
  const Format e4m3fn = parse_format("e4m3fn");
  if (strcmp(kind, "e4m3+f32") == 0) return decode(&e4m3fn, data[i]);
  memcpy(&half, data + 2 * i, 2);
  const Format bf16 = parse_format("e8m7"), f16 = parse_format("e5m10");
  if (strcmp(kind, "bf16") == 0) return decode(&bf16, half);
  if (strcmp(kind, "f16") == 0) return decode(&f16, half);
  die("this reader does not know scales of", kind);
  return 0;
}
static uint64_t up(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }
/* Sizes come from the file: their products must not wrap to what it has. */
static uint64_t times(uint64_t a, uint64_t b, const char *name) {
  if (b != 0 && a > ((uint64_t)1 << 60) / b) die("sizes of no tensor:", name);
  return a * b;
}

static float *values_of(const File *file, const char *name, const Tensor *t, uint64_t *count) {
  const Stored *codes = find(file, name, ""), *scales = find(file, name, ".scales"),
               *whole = find(file, name, ".tensor_scale");
  if (codes == NULL || scales == NULL) die("the file lacks the codes or scales of", name);
  const int two_levels = strcmp(t->scale, "e4m3+f32") == 0, bits = format_bits(&t->format);
  if (two_levels != (whole != NULL)) die("the file lacks the tensor's own scale, or has one:", name);
  float tensor_scale = 1;
  if (two_levels && whole->end - whole->begin != 4) die("a scale of another size:", name);
  if (two_levels) memcpy(&tensor_scale, file->data + whole->begin, 4);
  /* The last two dimensions are rows and columns; those before count matrices. */
  const uint64_t cols = t->rank > 0 ? t->sizes[t->rank - 1] : 1;
  const uint64_t rows = t->rank > 1 ? t->sizes[t->rank - 2] : 1;
  uint64_t matrices = 1;
  for (int i = 0; i + 2 < t->rank; ++i) matrices = times(matrices, t->sizes[i], name);
  const uint64_t all_rows = times(matrices, rows, name);
  const int packed = t->packed && bits < 8 && t->rank > 0;
  const uint64_t row_bytes =
      packed ? up(times(cols, (uint64_t)bits, name), 8) : times(cols, bits > 8 ? 2 : 1, name);
  const int single = t->tile_rows == 0 && t->tile_cols == 0;
  const uint64_t high = t->tile_rows ? t->tile_rows : rows, wide = t->tile_cols ? t->tile_cols : cols;
  const uint64_t down = high ? up(rows, high) : 0, across = wide ? up(cols, wide) : 0;
  const uint64_t each = strcmp(t->scale, "f32") == 0 ? 4 : strstr(t->scale, "16") != NULL ? 2 : 1;
  if (codes->end - codes->begin != times(all_rows, row_bytes, name))
    die("codes of another size:", name);
  const uint64_t tiles = single ? 1 : times(times(matrices, down, name), across, name);
  if (scales->end - scales->begin != tiles * each) die("scales of another size:", name);
  *count = times(all_rows, cols, name);
  float *out = memory(NULL, times(*count, sizeof *out, name));
  if (*count == 0) return out; /* with rows beyond number, perhaps, of nothing */
  for (uint64_t m = 0; m < matrices; ++m)
    for (uint64_t r = 0; r < rows; ++r)
      for (uint64_t c = 0; c < cols; ++c) {
        const unsigned char *row = file->data + codes->begin + (m * rows + r) * row_bytes;
        uint32_t code = 0;
        uint64_t bit = c * (uint64_t)bits; /* packed: of a little-endian stream */
        for (int b = 0; packed && b < bits; ++b, ++bit)
          code |= (uint32_t)(row[bit / 8] >> (bit % 8) & 1) << b;
        if (!packed)
          code = bits > 8 ? row[2 * c] | (uint32_t)row[2 * c + 1] << 8
                          : row[c] & ((1u << bits) - 1);
        const uint64_t tile = single ? 0 : (m * down + r / high) * across + c / wide;
        const double scale = scale_at(t->scale, file->data + scales->begin, tile);
        /* All of the product, rounded once. A NaN scale is NaN whatever the code, zero is zero. */
        double value = scale != scale ? NAN : decode(&t->format, code) * scale * tensor_scale;
        if (scale == 0) value = 0;
        out[(m * rows + r) * cols + c] = (float)value;
      }
  return out;
}

int main(int argc, char **argv) {
  static const char kTensor[] = "octavo.tensor.";
  if (argc != 2 && argc != 3)
    return fputs("usage: read_octavo FILE.safetensors [NAME]\n", stderr), 2;
  const File file = read_file(argv[1]);
  const char *version = metadata_of(&file, "octavo.version");
  if (version == NULL || strcmp(version, "1") != 0)
    die("expected octavo.version 1 in the metadata, got", version ? version : "none");
  int found = 0;
  for (size_t i = 0; i < file.entry_count; ++i) {
    if (strncmp(file.entries[i].name, kTensor, sizeof kTensor - 1) != 0) continue;
    const char *name = file.entries[i].name + sizeof kTensor - 1;
    if (argc == 3 && strcmp(argv[2], name) != 0) continue;
    found = 1;
    const Tensor tensor = parse_tensor(name, file.entries[i].value);
    uint64_t count = 0;
    float *values = values_of(&file, name, &tensor, &count);
    if (argc == 3) {
      fwrite(values, sizeof *values, count, stdout);
    } else {
      show(stdout, name, 1000);
      fputs("  ", stdout);
      show(stdout, file.entries[i].value, 1000);
      fputs("\n ", stdout);
      for (uint64_t v = 0; v < count && v < 8; ++v) printf(" %.9g", (double)values[v]);
      printf(count > 8 ? " ...\n" : "\n");
    }
    free(values);
  }
  if (!found) die("the file has no tensor", argc == 3 ? argv[2] : "with metadata");
  return 0;
}
