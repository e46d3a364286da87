"""Tokenizers: text to tokens and back, by a model's tokenizer.json."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence

from octavo import _octavo
from octavo._operation import integer


class Tokenizer:
    """A model's tokenizer: BPE over bytes (Llama 3, Qwen) or with byte fallback (Llama 2, Gemma).

    Ids are those of Hugging Face's `tokenizers`, on any text.
    """

    def __init__(self, tokenizer_json: str, tokenizer_config_json: str = "") -> None:
        self._tokenizer = _octavo.Tokenizer.from_json(tokenizer_json, tokenizer_config_json)

    @classmethod
    def from_json(cls, tokenizer_json: str, tokenizer_config_json: str = "") -> Tokenizer:
        """From the texts of tokenizer.json and tokenizer_config.json."""
        return cls(tokenizer_json, tokenizer_config_json)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """From a folder or its tokenizer.json, with tokenizer_config.json where there is one."""
        file = pathlib.Path(path)
        if file.is_dir():
            file = file / "tokenizer.json"
        config = file.with_name("tokenizer_config.json")
        has_config = file.name == "tokenizer.json" and config.exists()
        text = file.read_text(encoding="utf-8")
        return cls(text, config.read_text(encoding="utf-8") if has_config else "")

    def encode(self, text: str, *, specials: bool = True) -> list[int]:
        """Ids of a text, with the BOS and EOS tokens that the tokenizer adds."""
        return self._tokenizer.encode(text, specials)

    def decode(self, ids: Sequence[int], *, skip_specials: bool = True) -> str:
        """The text of ids; those that no token has are left out."""
        op = "Tokenizer.decode"
        checked = [integer(id, "a token id", 2**31 - 1, op) for id in ids]
        return self._tokenizer.decode(checked, skip_specials)

    def id_of(self, token: str) -> int | None:
        """A token's id."""
        return self._tokenizer.id_of(token)

    def token_of(self, id: int) -> str:
        """The token of an id, as it stands in the vocabulary; "" where there is none."""
        return self._tokenizer.token_of(id)

    def is_special(self, id: int) -> bool:
        """Whether a token is a special one, which `decode` leaves out."""
        return self._tokenizer.is_special(id)

    @property
    def size(self) -> int:
        """Ids are below it."""
        return self._tokenizer.size

    @property
    def bos(self) -> int | None:
        """The token that begins a text."""
        return self._tokenizer.bos

    @property
    def eos(self) -> int | None:
        """The token that ends a text."""
        return self._tokenizer.eos
