/* CRC-32C (Castagnoli) and records with it, by the CPU's instruction where there is one, by a table where not. */
#ifndef LAMINA_CRC32C_H
#define LAMINA_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t lamina_crc_table[8][256];

/* Slicing by eight: table[k][b] is the CRC of byte b followed by k zero bytes. */
static void lamina_crc_fill_table(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1)));
        lamina_crc_table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++) {
            uint32_t crc = lamina_crc_table[k - 1][n];
            lamina_crc_table[k][n] = (crc >> 8) ^ lamina_crc_table[0][crc & 0xFF];
        }
}

static uint32_t lamina_crc_by_table(uint32_t crc, const uint8_t *p, size_t n) {
    uint32_t(*t)[256] = lamina_crc_table;
    while (n >= 8) {
        uint32_t low = crc ^ (p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24);
        crc = t[7][low & 0xFF] ^ t[6][(low >> 8) & 0xFF] ^ t[5][(low >> 16) & 0xFF] ^ t[4][low >> 24] ^
              t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
        p += 8;
        n -= 8;
    }
    while (n--) crc = (crc >> 8) ^ t[0][(crc ^ *p++) & 0xFF];
    return crc;
}

static uint8_t *lamina_put_by_table(uint8_t *at, uint64_t seconds, uint32_t nanos, const uint8_t *payload, size_t size) {
    uint8_t *start = at;
    *at++ = 1;
    for (int shift = 56; shift >= 0; shift -= 8) *at++ = (uint8_t)(seconds >> shift);
    for (int shift = 24; shift >= 0; shift -= 8) *at++ = (uint8_t)(nanos >> shift);
    *at++ = 0xFF;
    *at++ = 0xFF;
    for (size_t rest = size; rest >= 0x80; rest >>= 7) *at++ = (rest & 0x7F) | 0x80;
    size_t last = size;
    while (last >= 0x80) last >>= 7;
    *at++ = (uint8_t)last;
    memcpy(at, payload, size);
    at += size;
    uint32_t crc = ~lamina_crc_by_table(0xFFFFFFFFu, start, (size_t)(at - start));
    for (int shift = 24; shift >= 0; shift -= 8) *at++ = (uint8_t)(crc >> shift);
    return at;
}

/* The CPU's instruction, for eight, four and one byte. The state is kept 64 bits wide: narrowing it between the
   steps of eight would cost a cycle each. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#define LAMINA_CPU __attribute__((target("sse4.2")))
#define LAMINA_CRC8(crc, word) _mm_crc32_u64((crc), (word))
#define LAMINA_CRC4(crc, word) _mm_crc32_u32((uint32_t)(crc), (word))
#define LAMINA_CRC1(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
static int lamina_crc_cpu_has_it(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_acle.h>
#define LAMINA_CPU
#define LAMINA_CRC8(crc, word) __crc32cd((uint32_t)(crc), (word))
#define LAMINA_CRC4(crc, word) __crc32cw((uint32_t)(crc), (word))
#define LAMINA_CRC1(crc, byte) __crc32cb((uint32_t)(crc), (byte))
static int lamina_crc_cpu_has_it(void) { return 1; }
#endif

#ifdef LAMINA_CPU
LAMINA_CPU static inline uint32_t lamina_crc_by_cpu(uint64_t crc, const uint8_t *p, size_t n) {
    uint64_t eight;
    uint32_t four;
    while (n >= 8) {
        memcpy(&eight, p, 8);
        crc = LAMINA_CRC8(crc, eight);
        p += 8;
        n -= 8;
    }
    if (n >= 4) {
        memcpy(&four, p, 4);
        crc = LAMINA_CRC4(crc, four);
        p += 4;
        n -= 4;
    }
    while (n--) crc = LAMINA_CRC1(crc, *p++);
    return (uint32_t)crc;
}

/* One record at `at`; returns where it ends. The head is put together in two registers and the payload is copied
   through a register on its way to the checksum: reading back bytes just stored would wait for the stores. */
LAMINA_CPU static uint8_t *lamina_put_by_cpu(uint8_t *at, uint64_t seconds, uint32_t nanos, const uint8_t *payload,
                                             size_t size) {
    uint64_t rest = size >> 7;
    uint64_t low = (size & 0x7F) | (rest ? 0x80 : 0);
    uint64_t big = __builtin_bswap64(seconds);
    uint64_t first = big << 8 | 1;
    uint64_t second = big >> 56 | (uint64_t)__builtin_bswap32(nanos) << 8 | 0xFFFFull << 40 | low << 56;
    uint64_t crc = LAMINA_CRC8(LAMINA_CRC8(0xFFFFFFFFu, first), second);
    memcpy(at, &first, 8);
    memcpy(at + 8, &second, 8);
    at += 16;
    while (rest) {
        uint8_t byte = (rest & 0x7F) | (rest >> 7 ? 0x80 : 0);
        crc = LAMINA_CRC1(crc, byte);
        *at++ = byte;
        rest >>= 7;
    }
    uint64_t eight;
    for (; size >= 8; size -= 8, payload += 8, at += 8) {
        memcpy(&eight, payload, 8);
        crc = LAMINA_CRC8(crc, eight);
        memcpy(at, &eight, 8);
    }
    memcpy(at, payload, size);
    uint32_t stored = __builtin_bswap32(~lamina_crc_by_cpu(crc, payload, size));
    memcpy(at + size, &stored, 4);
    return at + size + 4;
}
#else
static int lamina_crc_cpu_has_it(void) { return 0; }
#define lamina_crc_by_cpu lamina_crc_by_table
#define lamina_put_by_cpu lamina_put_by_table
#endif

static int lamina_crc_use_cpu = 0;

static void lamina_crc_prepare(void) {
    lamina_crc_fill_table();
    lamina_crc_use_cpu = lamina_crc_cpu_has_it();
}

static inline uint32_t lamina_crc32c(uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    crc = lamina_crc_use_cpu ? lamina_crc_by_cpu(crc, p, n) : lamina_crc_by_table(crc, p, n);
    return ~crc;
}

static inline uint32_t lamina_crc32c_table_only(uint32_t crc, const uint8_t *p, size_t n) {
    return ~lamina_crc_by_table(~crc, p, n);
}

#endif
