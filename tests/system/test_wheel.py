"""What `make dist` builds installs and runs where there is no compiler.

The wheel is built as `make dist` builds it, in the checkout's own target directory: after the first
time nothing is compiled. Cargo's lock keeps it apart from other builds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mount, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
BARE_PATH = "/nowhere"
"""No compiler, no Rust: programs are called by their full paths."""
STUBS = {
    f"cowfs/{each}.pyi" for each in ("__init__", "_native", "blocking", "api/asynchronous", "api/declared/asynchronous")
}


def interpreters() -> list[str]:
    """The oldest and the newest from 3.11 on that can make environments: of this machine, and
    pyenv's. The wheel is the same for all."""
    found: dict[str, str] = {}
    candidates = [sys.executable, "/usr/bin/python3"]
    candidates += [f"/usr/bin/python3.{minor}" for minor in range(11, 20)]
    candidates += sorted(map(str, Path.home().glob(".pyenv/versions/3.*/bin/python3")))
    for candidate in candidates:
        asked = "import ensurepip, sys; print(sys.version_info[1] if sys.version_info >= (3, 11) else 0)"
        try:
            done = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, timeout=60)
        except OSError:
            continue
        if done.returncode == 0 and (minor := done.stdout.strip()) != "0":
            found.setdefault(minor, candidate)
    minors = sorted(found, key=int)
    return [found[minor] for minor in dict.fromkeys([minors[0], minors[-1]])]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with sdist and wheel."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run([ROOT / ".ci" / "build-dist", sys.executable, out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(params=interpreters(), ids=lambda path: Path(path).parents[1].name)
def installed(request: pytest.FixtureRequest, dist: Path, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The bin directory of a fresh environment with the wheel, and the variables of a user
    there."""
    venv = tmp_path / "venv"
    (wheel,) = dist.glob("*.whl")
    (tmp_path / "run").mkdir(mode=0o700)
    variables = {
        "PATH": BARE_PATH,
        "HOME": str(tmp_path / "home"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "LANG": "C.UTF-8",
    }
    passed_on = {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name.lower()
    }
    subprocess.run([request.param, "-m", "venv", "--without-pip", venv], env=variables, check=True)
    python = str(venv / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    pip += ["--only-binary", ":all:", str(wheel)]
    subprocess.run(pip, env={**passed_on, **variables}, check=True, cwd=tmp_path)
    return venv / "bin", variables


def test_the_wheel_is_for_every_python_and_old_systems(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.name.startswith("cowfs_volumes-")
    assert "-cp311-abi3-manylinux_2_28_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "cowfs/_native.abi3.so" in names
    assert "cowfs/py.typed" in names
    assert set(names) >= STUBS
    assert "cowfs/index/schema.sql" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]


def test_the_sdist_has_what_a_build_needs(dist: Path, tmp_path: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    assert (root / "LICENSE").exists()
    assert all((root / each).exists() for each in STUBS)
    manifest = root / "native" / "python" / "Cargo.toml"
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", f"--manifest-path={manifest}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {package["name"] for package in json.loads(done.stdout)["packages"]}
    assert {"cowfs-python", "cowfs-engine", "cowfs-lane"} <= names


def test_the_wheel_mounts_and_commits_without_a_compiler(
    installed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    programs, variables = installed

    def cowfs(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [programs / "cowfs", *arguments], env=variables, capture_output=True, text=True, cwd=tmp_path, timeout=180
        )

    assert cowfs("create", "data").returncode == 0
    path = tmp_path / "data"
    refused = cowfs("mount", "data", path, "--no-fast-lane")
    assert refused.returncode == 12, "pyfuse3 is an extra"
    assert "cowfs-volumes[pyfuse3]" in refused.stderr
    mounted = cowfs("mount", "data", path)
    assert mounted.returncode == 0, mounted.stderr
    try:
        (path / "file").write_text("from a wheel")
        locator = cowfs("commit", path, "-m", "one").stdout.strip()
    finally:
        assert cowfs("unmount", path).returncode == 0
    assert cowfs("mount", locator, path).returncode == 0
    try:
        assert (path / "file").read_text() == "from a wheel"
    finally:
        assert cowfs("unmount", path).returncode == 0
