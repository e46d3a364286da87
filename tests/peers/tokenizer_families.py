"""Tokenizers of every family's kind, trained on what is at hand, and a text of everything.

The expressions are those of the families; tests/conformance/generate_tokenizers.py uses these, too.
"""

import json
import random

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def cut(*expressions):
    return [pre_tokenizers.Split(Regex(one), "isolated") for one in expressions]


def bytes_of(*steps):
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*steps, last])


def byte_level(pre_tokenizer, corpus, size, normalizer=None, ignore_merges=False, bos=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=["<|endoftext|>", "<|im_start|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens(
        [
            AddedToken("<tool>", special=False, normalized=False),
            AddedToken("Norm", special=False, normalized=True),
            AddedToken("[L]", lstrip=True, rstrip=True),
            AddedToken("word1", single_word=True),
        ]
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|im_start|> $A", pair="$A $B", special_tokens=[("<|im_start|>", 1)]
        )
    return tokenizer.to_str()


def pieces(
    corpus, size, pre_tokenizer=None, normalizer=None, decoder=None, fallback=True, fuse=True
):
    tokenizer = Tokenizer(models.BPE(byte_fallback=fallback, fuse_unk=fuse, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    every_byte = [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=["<unk>", "<s>", "</s>", *every_byte],
            show_progress=False,
        ),
    )
    if normalizer:
        tokenizer.normalizer = normalizer
    file = json.loads(tokenizer.to_str())
    file["pre_tokenizer"] = json.loads(pre_tokenizer.__getstate__()) if pre_tokenizer else None
    file["added_tokens"] = [one for one in file["added_tokens"] if one["content"] not in every_byte]
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_tokens(
        [
            AddedToken("\n\n", normalized=False),
            AddedToken("▁▁▁▁", normalized=False),
            AddedToken("Nrm", normalized=True),
        ]
    )
    if decoder:
        tokenizer.decoder = decoder
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="$A $B", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer.to_str()


def families(corpus, size):
    """tokenizer.json by the name of its kind."""
    space, llama = normalizers.Replace(" ", "▁"), [decoders.Replace("▁", " ")]
    llama += [decoders.ByteFallback(), decoders.Fuse()]
    gemma = decoders.Sequence(llama)
    llama = decoders.Sequence([*llama, decoders.Strip(" ", 1, 0)])
    bytes_alone = pre_tokenizers.ByteLevel
    meta, split = pre_tokenizers.Metaspace, pre_tokenizers.Split
    nfc, nfd, nfkc = normalizers.NFC(), normalizers.NFD(), normalizers.NFKC()
    stripped = normalizers.Sequence([normalizers.Strip(), normalizers.Lowercase()])
    by_class = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), split(Regex(r"\w\b"), "contiguous")]
    )
    digits = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=False)]
    )
    smollm = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), bytes_alone(False)])
    deepseek = bytes_of(*cut(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK))
    out = {
        "gpt2": byte_level(bytes_alone(False), corpus, size),
        "gpt2_prefix": byte_level(bytes_alone(True), corpus, size),
        "llama3": byte_level(bytes_of(*cut(LLAMA3)), corpus, size, ignore_merges=True, bos=True),
        "qwen2": byte_level(bytes_of(*cut(QWEN2)), corpus, size, normalizer=nfc),
        "o200k": byte_level(bytes_of(*cut(O200K)), corpus, size),
        "smollm": byte_level(smollm, corpus, size),
        "deepseek": byte_level(deepseek, corpus, size),
        "llama2": pieces(
            corpus,
            size,
            normalizer=normalizers.Sequence([normalizers.Prepend("▁"), space]),
            decoder=llama,
        ),
        "mistral": pieces(corpus, size, meta(prepend_scheme="first", split=False), None, llama),
        "gemma": pieces(corpus, size, split(" ", "merged_with_previous"), space, gemma),
        "metaspace_first": pieces(
            corpus, size, meta(prepend_scheme="first"), None, decoders.Metaspace()
        ),
        "metaspace_nfkc": pieces(corpus, size, meta(), nfkc, decoders.Metaspace()),
        "unknown_fused": pieces(corpus, size, meta(), stripped, decoders.Metaspace(), False, True),
        "unknown": pieces(corpus, size, digits, nfd, decoders.Fuse(), False, False),
        "classes": pieces(corpus, size, by_class, normalizers.NFKD(), decoders.Fuse()),
    }
    for behavior in ("removed", "merged_with_previous", "merged_with_next", "contiguous"):
        steps = [split("e", behavior), split(Regex(r"[aou]\h?"), behavior, invert=False)]
        out[f"split_{behavior}"] = pieces(
            corpus, size, pre_tokenizers.Sequence(steps), None, decoders.Fuse()
        )
    return out


SPACES = [*" \t\n\r\v\f\0\u00a0\u2003\u3000\u200b\u2028\u180e\u0085\u202f\u1680\x1f", "\r\n"]
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "❤️", "😀", "🧑🏿‍🚀", "1️⃣", "🫨", "🩵"]
CONTRACTED = ["I'm", "don't", "WE'LL", "it's", "THEY'RE", "'S", "'Ll", "'ſ", "'\u212a", "''", "'t"]
ADDED = [
    "<|endoftext|>",
    "<|im_start|>",
    "<tool>",
    "Norm",
    " [L] ",
    "word1",
    "aword1 word1b",
    "<s>",
]
ADDED += ["</s>", "<unk>", "▁▁▁▁", "Nrm", "<0x41>", "<|im_start", "▁"]
BLOCKS = [(0x600, 0x6FF), (0xE00, 0xE7F), (0x4E00, 0x9FFF), (0x3040, 0x30FF), (0xAC00, 0xD7A3)]
BLOCKS += [(0x400, 0x4FF), (0x370, 0x3FF), (0x900, 0x97F), (0x590, 0x5FF), (0x1100, 0x11FF)]
BLOCKS += [(0x300, 0x36F), (0x1E00, 0x1EFF), (0xFF00, 0xFFEF), (0x80, 0x24F), (0x2000, 0x2BFF)]
BLOCKS += [(0x1D00, 0x1DFF), (0x20D0, 0x20FF), (0x16A0, 0x17FF), (0x10000, 0x11FFF)]
BLOCKS += [(0x1E000, 0x1EFFF), (0x1F000, 0x1FAFF), (0xE0000, 0xE01FF), (0x31350, 0x323AF)]
BLOCKS += [(0x2EBF0, 0x2EE5D), (0x1AB0, 0x1AFF), (0x8C0, 0x8FF)]
MARKS = "\u0301\u0316\u0327\u0308\u0345\u05b0\u0334\u1dfa\u09fe\u3099\u20dd"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
OTHERS = ["a", "Z", "\u0130", "ß", "ﬁ", "ǅ", "\u212a", "\u212b", "가", "\u1100\u1161"]


def mixed_text(size, words, seed=1):
    """At least `size` bytes: words, all kinds of space, scripts, marks, emoji, any code point."""
    draw = random.Random(seed)

    def point():
        while True:
            code = draw.randrange(0x110000)
            if not 0xD800 <= code <= 0xDFFF:
                return chr(code)

    def block():
        first, last = draw.choice(BLOCKS)
        return "".join(chr(draw.randint(first, last)) for _ in range(draw.randrange(1, 14)))

    kinds = [
        lambda: " ".join(draw.choices(words, k=draw.randrange(1, 12))),
        lambda: "".join(draw.choices(SPACES, k=draw.randrange(1, 6))),
        lambda: draw.choice(EMOJI) * draw.randrange(1, 3),
        lambda: " " + draw.choice(CONTRACTED) + draw.choice(["", "", " ", "."]),
        lambda: draw.choice(ADDED),
        lambda: "".join(point() for _ in range(draw.randrange(1, 10))),
        block,
        block,
        block,
        lambda: "".join(draw.choices("0123456789٣५Ⅷ½²", k=draw.randrange(1, 9))),
        lambda: draw.choice("aeiouAnñ ") + "".join(draw.choices(MARKS, k=draw.randrange(1, 5))),
        lambda: "".join(draw.choices(PUNCTUATION, k=draw.randrange(1, 6))),
        lambda: "".join(draw.choices("abcXYZ_dé 9", k=draw.randrange(1, 20))),
        lambda: draw.choice(OTHERS),
    ]
    out, done = [], 0
    while done < size:
        out.append(draw.choice(kinds)())
        done += len(out[-1].encode())
    return "".join(out)
