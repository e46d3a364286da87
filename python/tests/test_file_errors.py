"""Errors of files are OSError, of the kind that Python's own functions raise."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

import octavo as ov

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cli"))
import tiny_model  # noqa: E402


@pytest.fixture
def model(tmp_path):
    return tiny_model.llama(tmp_path / "model")


def raised(call, kind: type[OSError], number: int, file) -> OSError:
    with pytest.raises(OSError) as caught:
        call()
    error = caught.value
    assert type(error) is kind, error
    assert error.errno == number and error.filename == str(file), error
    assert error.strerror and error.strerror.startswith("["), error
    return error


def test_a_file_that_is_not_there(tmp_path):
    gone = tmp_path / "gone"
    for call in (
        lambda: ov.inspect(gone),
        lambda: ov.verify_checkpoint(gone),
        lambda: ov.quantize_checkpoint(gone, tmp_path / "out"),
        lambda: ov.quantize_checkpoint(gone, dry_run=True),
        lambda: ov.convert_checkpoint(gone, tmp_path / "out", "octavo"),
        lambda: ov.compare_checkpoints(gone, gone),
        lambda: ov.load(gone),
    ):
        error = raised(call, FileNotFoundError, errno.ENOENT, gone)
        assert os.strerror(errno.ENOENT) in str(error)


def test_a_shard_that_is_not_there(tmp_path):
    folder = tiny_model.llama(tmp_path / "model", shards=2)
    shard = folder / "model-00002-of-00002.safetensors"
    shard.unlink()
    raised(lambda: ov.inspect(folder), FileNotFoundError, errno.ENOENT, shard)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(model):
    weights = model / "model.safetensors"
    weights.chmod(0)
    raised(lambda: ov.inspect(model), PermissionError, errno.EACCES, weights)


def test_a_folder_where_a_file_is_expected(tmp_path, model):
    raised(lambda: ov.load(model), IsADirectoryError, errno.EISDIR, model)
    raised(lambda: ov.save(model, {}), IsADirectoryError, errno.EISDIR, model)


def test_an_output_that_is_there_already(tmp_path, model):
    ov.quantize_checkpoint(model, tmp_path / "out")
    again = lambda **more: ov.quantize_checkpoint(model, tmp_path / "out", **more)  # noqa: E731
    raised(again, OSError, errno.ENOTEMPTY, tmp_path / "out")
    other = lambda: again(recipe="mxfp8", resume=True)  # noqa: E731
    raised(other, FileExistsError, errno.EEXIST, tmp_path / "out")


def test_names_that_are_not_ascii(tmp_path):
    gone = tmp_path / "gëne"
    raised(lambda: ov.inspect(gone), FileNotFoundError, errno.ENOENT, gone)


def test_links_out_of_the_folder(tmp_path, model):
    secret = tmp_path / "secret"
    secret.write_text("s")
    link = model / "vocab.json"
    link.symlink_to(secret)
    out = tmp_path / "out"
    error = raised(lambda: ov.quantize_checkpoint(model, out), OSError, errno.ELOOP, link)
    assert "follow_links" in str(error) and not out.exists()
    raised(lambda: ov.quantize_checkpoint(model, dry_run=True), OSError, errno.ELOOP, link)
    assert ov.quantize_checkpoint(model, dry_run=True, follow_links=True).verb == "plan"
    ov.quantize_checkpoint(model, out, follow_links=True)
    assert (out / "vocab.json").read_text() == "s"
    (out / "vocab.json").unlink()
    (out / "vocab.json").symlink_to(secret)
    for convert in (
        lambda **more: ov.convert_checkpoint(out, tmp_path / "a", "octavo", **more),
        lambda **more: ov.dequantize_checkpoint(out, tmp_path / "b", **more),
    ):
        raised(convert, OSError, errno.ELOOP, out / "vocab.json")
        convert(follow_links=True)
    with pytest.raises(TypeError, match="follow_links"):
        ov.quantize_checkpoint(model, tmp_path / "c", follow_links=1)
