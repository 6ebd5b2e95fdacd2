"""Whether files can be written, and that none is left half written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hplacer_optimizer.support.new_file import check_new_directory, check_new_file, new_file


def test_what_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    for name in ("new", "old"):
        check_new_file(tmp_path / name)
    for name in ("", "new", "new/below"):
        check_new_directory(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IsADirectoryError, match="name a file"):
        check_new_file(tmp_path)
    with pytest.raises(FileNotFoundError, match="its directory does not exist"):
        check_new_file(tmp_path / "none" / "x")
    with pytest.raises(NotADirectoryError, match="file is a file"):
        check_new_directory(tmp_path / "file" / "x")


def test_a_pipe_gets_what_is_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_new_file(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with new_file(pipe) as file:
        file.write(b"all")
    assert os.read(reader, 10) == b"all"
    os.close(reader)
    assert [*tmp_path.iterdir()] == [pipe]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "link").symlink_to("old")
    check_new_file(tmp_path / "link")
    with new_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "old").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "dangling").symlink_to("none/x")
    with pytest.raises(FileNotFoundError, match="its directory does not exist"):
        check_new_file(tmp_path / "dangling")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    for check in (check_new_file, check_new_directory):
        with pytest.raises(PermissionError, match="you may not write there"):
            check(tmp_path / "x")


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_nothing_is_left_of_a_file_that_was_not_finished(
    failure: type[BaseException], tmp_path: Path
) -> None:
    def write_a_part() -> None:
        with new_file(tmp_path / "x") as file:
            file.write(b"a part")
            raise failure

    with pytest.raises(failure):
        write_a_part()
    assert not [*tmp_path.iterdir()]
