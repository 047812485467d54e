import os
import shutil
import tempfile
from pathlib import Path

import pytest

from sharedqkv.data.work import claim


def test_only_one_at_a_time(tmp_path):
    with claim(tmp_path / "out"), pytest.raises(ValueError, match=r"another sharedqkv prepare is writing to .*out"):
        claim(tmp_path / "out").__enter__()


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match=r"other things .thesis.tex. and no prepared corpus: choose another --output"):
        claim(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_other_settings_are_told_apart_and_nothing_is_lost(tmp_path):
    with claim(tmp_path / "out") as work:
        work.begin({"layout": "chunks", "length": 128})
        work.tokens(0, "x").write_text("finished", encoding="utf-8")
    with claim(tmp_path / "out") as work:
        work.begin({"layout": "chunks", "length": 128})
    with (
        pytest.raises(
            ValueError, match=r'other settings \(layout was "chunks", now "pairs"\).*choose another --output'
        ),
        claim(tmp_path / "out") as work,
    ):
        work.begin({"layout": "pairs", "length": 128})
    assert work.tokens(0, "x").exists()


def test_nothing_is_left_of_a_run_that_finished_nothing(tmp_path):
    with claim(tmp_path / "out") as work:
        work.begin({"layout": "chunks"})
    assert not (tmp_path / "out").exists()


@pytest.fixture
def read_only_folder():
    """For root too, who may write everywhere unless it acts as somebody else."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        try:
            os.seteuid(65534)
        except OSError as error:
            shutil.rmtree(folder)
            pytest.skip(f"root cannot act as somebody else here: {error}")
    yield folder
    if is_root:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_folder_is_named(read_only_folder):
    with pytest.raises(
        OSError, match=rf"cannot write to {read_only_folder}/out \(Permission denied\).*another --output"
    ):
        claim(read_only_folder / "out").__enter__()
    with pytest.raises(OSError, match=rf"cannot write to {read_only_folder} \(Permission denied\)"):
        claim(read_only_folder).__enter__()


def test_an_input_edited_afterwards_is_noticed(tmp_path):
    """Of the same size, so that only its time gives it away."""
    import os

    import pytest

    from sharedqkv.data.prepare import PrepareArguments, prepare

    text = tmp_path / "text.txt"
    text.write_text("alpha beta gamma delta . " * 40)
    arguments = PrepareArguments(
        output=str(tmp_path / "corpus"), source=(str(text),), train_vocab_size=40, length=16, processes=1
    )
    prepare(arguments)
    prepare(arguments)
    text.write_text("omega beta gamma delta . " * 40)
    later = (tmp_path / "corpus" / "manifest.json").stat().st_mtime + 5
    os.utime(text, (later, later))
    with pytest.raises(ValueError, match=r"text\.txt was changed after .* was prepared from it"):
        prepare(arguments)
