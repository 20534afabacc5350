/* CRC-32C (Castagnoli) with the CPU's instruction where there is one, a table where not. */
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

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t lamina_crc_by_cpu(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t wide = crc;
    uint64_t eight;
    uint32_t four;
    while (n >= 8) {
        memcpy(&eight, p, 8);
        wide = _mm_crc32_u64(wide, eight);
        p += 8;
        n -= 8;
    }
    crc = (uint32_t)wide;
    if (n >= 4) {
        memcpy(&four, p, 4);
        crc = _mm_crc32_u32(crc, four);
        p += 4;
        n -= 4;
    }
    while (n--) crc = _mm_crc32_u8(crc, *p++);
    return crc;
}
static int lamina_crc_cpu_has_it(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static uint32_t lamina_crc_by_cpu(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t eight;
    while (n >= 8) {
        memcpy(&eight, p, 8);
        crc = __crc32cd(crc, eight);
        p += 8;
        n -= 8;
    }
    while (n--) crc = __crc32cb(crc, *p++);
    return crc;
}
static int lamina_crc_cpu_has_it(void) { return 1; }
#else
static uint32_t lamina_crc_by_cpu(uint32_t crc, const uint8_t *p, size_t n) {
    return lamina_crc_by_table(crc, p, n);
}
static int lamina_crc_cpu_has_it(void) { return 0; }
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
