"""The check of instructions must see each class, in lines as objdump prints them."""

from __future__ import annotations

import unittest

from check_isa_instructions import CLASSES, FOLDERS, allowed, check

# Class: bytes and text of instructions that are in it. Some are in a class above it, too.
SAMPLES = {
    "x86_64": {
        "SSE3 to SSE4.2": [
            ("66 0f 38 00 c1", "pshufb %xmm1,%xmm0"),
            ("66 0f 38 40 c1", "pmulld %xmm1,%xmm0"),
            ("66 0f 3a 0a c1 04", "roundss $0x4,%xmm1,%xmm0"),
            ("66 0f 3a 14 c0 01", "pextrb $0x1,%xmm0,%eax"),
            ("f3 48 0f b8 c7", "popcnt %rdi,%rax"),
        ],
        "BMI": [
            ("c4 e2 fb f7 c7", "shrx  %rax,%rdi,%rax"),
            ("c4 e2 70 f2 c2", "andn %edx,%ecx,%eax"),
        ],
        "AVX": [
            ("c5 fc 58 c1", "vaddps %ymm1,%ymm0,%ymm0"),
            ("64 c5 f8 10 07", "vmovups %fs:(%rdi),%xmm0"),
            ("c4 e2 7d 13 07", "vcvtph2ps (%rdi),%ymm0"),
            ("c4 e2 75 b8 c2", "vfmadd231ps %ymm2,%ymm1,%ymm0"),
        ],
        "AVX-512": [
            ("62 f1 7c 48 58 c1", "vaddps %zmm1,%zmm0,%zmm0"),
            ("62 a1 7c 08 58 c1", "vaddps %xmm17,%xmm0,%xmm16"),
            ("62 f1 7c 29 58 c1", "vaddps %ymm1,%ymm0,%ymm0{%k1}"),
            ("62 f2 7d 48 13 07", "vcvtph2ps (%rdi),%zmm0"),
        ],
        "masks": [("c5 f8 92 cf", "kmovw  %edi,%k1"), ("c5 ec 41 d9", "kandw  %k1,%k2,%k3")],
        "VBMI": [
            ("62 f2 75 48 8d c2", "vpermb %zmm2,%zmm1,%zmm0"),
            ("62 f2 75 48 75 c2", "vpermi2b %zmm2,%zmm1,%zmm0"),
            ("62 f2 75 48 7d c2", "vpermt2b %zmm2,%zmm1,%zmm0"),
        ],
        "VBMI2": [
            ("62 f2 7d 48 63 c1", "vpcompressb %zmm0,%zmm1"),
            ("62 f2 75 48 71 c2", "vpshldvd %zmm2,%zmm1,%zmm0"),
        ],
        "VNNI": [
            ("62 f2 75 48 50 c2", "vpdpbusd %zmm2,%zmm1,%zmm0"),
            ("c4 e2 75 50 c2", "{vex} vpdpbusd %ymm2,%ymm1,%ymm0"),
        ],
        "AVX-512 BF16": [
            ("62 f2 77 48 72 c2", "vcvtne2ps2bf16 %zmm2,%zmm1,%zmm0"),
            ("62 f2 76 48 52 c2", "vdpbf16ps %zmm2,%zmm1,%zmm0"),
        ],
        "AVX-512 FP16": [
            ("62 f5 74 48 58 c2", "vaddph %zmm2,%zmm1,%zmm0"),
            ("62 f6 75 48 b8 c2", "vfmadd231ph %zmm2,%zmm1,%zmm0"),
            ("62 f6 7d 48 13 c1", "vcvtph2psx %ymm1,%zmm0"),
            ("62 f5 7d 08 6e c7", "vmovw  %edi,%xmm0"),
        ],
        "rarer AVX-512": [
            ("62 f2 fd 48 b4 c1", "vpmadd52luq %zmm1,%zmm0,%zmm0"),
            ("62 f2 7d 48 54 c1", "vpopcntb %zmm1,%zmm0"),
        ],
        "GFNI": [
            ("66 0f 38 cf c1", "gf2p8mulb %xmm1,%xmm0"),
            ("62 f3 f5 48 ce c2 00", "vgf2p8affineqb $0x0,%zmm2,%zmm1,%zmm0"),
        ],
        "AMX tiles": [
            ("c4 e2 78 49 07", "ldtilecfg (%rdi)"),
            ("c4 e2 7b 4b 04 37", "tileloadd (%rdi,%rsi,1),%tmm0"),
            ("c4 e2 78 49 c0", "tilerelease"),
        ],
        "AMX bf16": [("c4 e2 6a 5c c1", "tdpbf16ps %tmm2,%tmm1,%tmm0")],
        "AMX int8": [("c4 e2 6b 5e c1", "tdpbssd %tmm2,%tmm1,%tmm0")],
        "AMX fp16": [("c4 e2 6b 5c c1", "tdpfp16ps %tmm2,%tmm1,%tmm0")],
    },
    "aarch64": {
        "atomics of Armv8.1": [
            ("b8e00041", "ldaddal\tw0, w1, [x2]"),
            ("88e07c41", "casa\tw0, w1, [x2]"),
        ],
        "half precision": [
            ("4e421420", "fadd\tv0.8h, v1.8h, v2.8h"),
            ("0e421420", "fadd\tv0.4h, v1.4h, v2.4h"),
            ("1ee22820", "fadd\th0, h1, h2"),
            ("4f121820", "fmla\tv0.8h, v1.8h, v2.h[1]"),
            ("4e79d820", "scvtf\tv0.8h, v1.8h"),
        ],
        "half precision to f32 sums": [("4e22ec20", "fmlal\tv0.4s, v1.4h, v2.4h")],
        "dot products": [("4e829420", "sdot\tv0.4s, v1.16b, v2.16b")],
        "bf16": [
            ("6e42ec20", "bfmmla\tv0.4s, v1.8h, v2.8h"),
            ("0ea16820", "bfcvtn\tv0.4h, v1.4s"),
        ],
        "int8 matrix products": [
            ("4e82a420", "smmla\tv0.4s, v1.16b, v2.16b"),
            ("4e829c20", "usdot\tv0.4s, v1.16b, v2.16b"),
        ],
        "SVE": [("a540a000", "ld1w\t{z0.s}, p0/z, [x0]")],
    },
}
EVERYWHERE = {
    "x86_64": [
        ("f3 0f 58 c1", "addss  %xmm1,%xmm0"),
        ("66 0f c4 c7 01", "pinsrw $0x1,%edi,%xmm0"),  # SSE2, unlike pinsrb
        ("f3 0f bc c7", "tzcnt  %edi,%eax"),  # bsf, on CPUs that do not know it
        ("f0 48 0f b1 0a", "lock cmpxchg %rcx,(%rdx)"),
    ],
    "aarch64": [
        ("0e216820", "fcvtn\tv0.4h, v1.4s"),
        ("4e217820", "fcvtl2\tv0.4s, v1.8h"),
        ("1ee24020", "fcvt\ts0, h1"),
        ("4e628420", "add\tv0.8h, v1.8h, v2.8h"),
        ("33000000", "bfxil\tw0, w0, #0, #1"),
        ("4e20d420", "fadd\tv0.4s, v1.4s, v0.4s"),
    ],
}


def listing(lines: list[tuple[str, str]]) -> list[str]:
    head = ["x.cc.o:     file format elf64-x\n", "\n", "0000000000000000 <f>:\n"]
    return head + [f"   {4 * i:x}:\t{code} \t{text}\n" for i, (code, text) in enumerate(lines)]


class InstructionsTest(unittest.TestCase):
    def wrong(self, arch: str, folder: str, lines: list[tuple[str, str]]) -> list[str]:
        _, wrong = check(arch, folder, listing(lines))
        return [line for line in wrong if "there for" not in line]

    def test_each_class_is_seen_where_it_does_not_belong(self):
        for arch, classes in CLASSES.items():
            self.assertEqual(SAMPLES[arch].keys(), classes.keys())
            for label, lines in SAMPLES[arch].items():
                for line in lines:
                    wrong = self.wrong(arch, "rooms", [line])
                    said = [text for text in wrong if f" is {label}, " in text]
                    self.assertEqual(len(said), 1, (label, line, wrong))
                    self.assertTrue(said[0].startswith("x.cc.o: f: '"), said)

    def test_each_class_passes_where_it_belongs(self):
        for arch, folders in FOLDERS.items():
            for folder in folders:
                for label in sorted(allowed(arch, folder)):
                    for line in SAMPLES[arch][label]:
                        self.assertEqual(self.wrong(arch, folder, [line]), [], (folder, line))

    def test_what_every_cpu_has_is_in_no_class(self):
        for arch, lines in EVERYWHERE.items():
            counts, wrong = check(arch, "rooms", listing(lines))
            self.assertEqual((dict(counts), wrong), ({"all": len(lines)}, []))

    def test_zmm_and_masks_do_not_hide_behind_a_mnemonic_of_avx2(self):
        for line in SAMPLES["x86_64"]["AVX-512"] + SAMPLES["x86_64"]["masks"]:
            self.assertEqual(len(self.wrong("x86_64", "avx2", [line])), 1, line)

    def test_conversions_of_f16_are_not_fp16_arithmetic(self):
        for code, text in [("62 f2 7d 48 13 07", "vcvtph2ps (%rdi),%zmm0"),
                           ("62 f3 7d 48 1d 07 00", "vcvtps2ph $0x0,%zmm0,(%rdi)")]:  # fmt: skip
            self.assertEqual(self.wrong("x86_64", "avx512", [(code, text)]), [])

    def test_a_folder_without_what_it_is_there_for_fails(self):
        for arch, folders in FOLDERS.items():
            for name, folder in folders.items():
                _, wrong = check(arch, name, listing(EVERYWHERE[arch]))
                self.assertEqual(len(wrong), len(folder.adds), (name, wrong))

    def test_a_listing_without_instructions_fails(self):
        self.assertEqual(len(check("x86_64", "rooms", ["junk\n"])[1]), 1)


if __name__ == "__main__":
    unittest.main()
