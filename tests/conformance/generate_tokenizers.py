"""Writes tokenizers.json: small tokenizers of every family's kind, and what PyPI's `tokenizers`
makes of short texts with them.

    python tests/conformance/generate_tokenizers.py   (needs tokenizers 0.23.3)
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "peers"))

import tokenizer_families  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

WORDS = (HERE.parents[1] / "LICENSE").read_text().split()
TEXTS = [
    "",
    " ",
    "Hello, world! It's 12345 o'clock.\r\n\r\n  The end  ",
    "a  b   c\t\td\n\n\ne",
    "<s>Nrm</s> word1 aword1 [L]   x<|im_start|>Norm",
    "한국어 日本語 Ελληνικά 👩‍👩‍👧‍👦 e\u0301\u0316 \u1100\u1161 ﬁ ½",
    "\u3000\u00a0\u180e\u200b\x00\x85",
    "WE'LL don'T 'ſ \u212a",
]
TEXTS += [tokenizer_families.mixed_text(60, WORDS[:200], seed) for seed in range(2, 12)]


def main():
    corpus = [" ".join(WORDS[:400]), "日本語 한국어 Привет"]
    out = {"texts": TEXTS, "kinds": {}}
    for name, file in tokenizer_families.families(corpus, 330).items():
        tokenizer = Tokenizer.from_str(file)
        ids = [tokenizer.encode(text).ids for text in TEXTS]
        out["kinds"][name] = {
            "tokenizer": json.loads(file),
            "ids": ids,
            "decoded": [tokenizer.decode(one, skip_special_tokens=True) for one in ids],
        }
    # Lone unescaped characters would make the file unreadable: ASCII alone.
    (HERE / "tokenizers.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
