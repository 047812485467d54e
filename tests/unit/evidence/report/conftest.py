from pathlib import Path

import pytest
from report_helpers import make_study

from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.measures import Measures, measure
from sharedqkv.evidence.report.write import build_report


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five pre-training seeds: enough that the tests can call what is planted."""
    folder = tmp_path_factory.mktemp("study")
    return make_study(folder, {"standard": 0.95, "shared": 0.75, "narrow": 0.94}, seeds=5, finetune_seeds=1)


@pytest.fixture(scope="session")
def measures(study_folder: Path) -> Measures:
    return measure(read_study(study_folder))


@pytest.fixture(scope="session")
def report(study_folder: Path) -> Path:
    return build_report(study_folder).parent
