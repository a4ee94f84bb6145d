"""Files that declare volumes: any text is a declaration, or an error that names the file and the
keys."""

from __future__ import annotations

import inspect
import os
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs import storage
from cowfs.api.declared import loading, targets
from cowfs.base import config
from cowfs.blocking import Declared, DeclaredStore, DeclaredVolume
from cowfs.errors import AccessDeniedError, InvalidInputError, NotFoundError

pytestmark = pytest.mark.quick

GOOD = """\
volumes = [
  {name = "imagenet", path = "/data", store = "main", subpath = "train"},   # read_only = true by default
  {name = ["ckpt-eu", "ckpt-us"], path = "/ckpt", read_only = false, optional = true, size = "100GB", idle_delete = "30d"},
]
[stores]
main = {url = "s3://data/team"}
near = "./store"
"""
SAME = """\
volumes:
  - {name: imagenet, path: /data, store: main, subpath: train}
  - name: [ckpt-eu, ckpt-us]
    path: /ckpt
    read_only: false
    optional: true
    size: 100GB
    idle_delete: 30d
stores:
  main:
    url: s3://data/team
  near: ./store
"""


def keys_of(error: InvalidInputError) -> list[str]:
    """The key of each problem; "" for a file that cannot be parsed."""
    return [each["key"] for each in error.details["problems"]]


def refused(text: str, name: str = "cowfs.toml") -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        loading.parsed(text.encode(), Path("/project") / name, Declared)
    return caught.value


def test_both_formats_say_the_same(project: Path) -> None:
    toml = loading.parsed(GOOD.encode(), project / "cowfs.toml", Declared)
    yaml = loading.parsed(SAME.encode(), project / "a.cowfs.yml", Declared)
    assert (toml.volumes, toml.stores) == (yaml.volumes, yaml.stores)
    first, second = toml.volumes
    assert (first.mount_path, first.read_only, first.folder, first.candidates) == (
        "/data",
        True,
        "train",
        ("imagenet",),
    )
    assert (second.candidates, second.optional, second.size_bytes) == (("ckpt-eu", "ckpt-us"), True, 100 * 10**9)
    assert second.idle_delete_s == 30 * 86_400
    assert toml.stores["near"].url == str(project / "store"), "a directory is relative to the file"


def test_the_same_can_be_declared_in_python() -> None:
    declared = Declared(
        volumes=[
            DeclaredVolume(name="imagenet", path="/data", store="main", subpath="train"),
            {
                "name": ["ckpt-eu", "ckpt-us"],
                "path": "/ckpt",
                "read_only": False,
                "optional": True,
                "size": "100GB",
                "idle_delete": "30d",
            },
        ],
        stores={"main": DeclaredStore(url="s3://data/team"), "near": "/project/store"},
    )
    loaded = loading.parsed(GOOD.encode(), Path("/project/cowfs.toml"), Declared)
    assert (declared.volumes, declared.stores) == (loaded.volumes, loaded.stores)
    assert declared.file is None
    assert pickle.loads(pickle.dumps(declared)) == declared
    with pytest.raises(InvalidInputError, match=r"DeclaredVolume: path: the mount path 'data' is relative"):
        DeclaredVolume(name="a", path="data")
    with pytest.raises(InvalidInputError, match=r"Declared: volumes\[0\]\.path: the mount path 'data' is relative"):
        Declared(volumes=[{"name": "a", "path": "data"}])


BAD: dict[str, tuple[str, list[str]]] = {
    "not TOML": ('volumes = [\n  {name = "a" path = "/a"},\n]\n', [""]),
    "not closed": ("volumes = [\n", [""]),
    "a key twice": ("[stores.a]\nurl = 's3://b'\nurl = 's3://c'\n", [""]),
    "a huge number": (f"a = 1\nb = {'1' * 5000}\n", [""]),
    "an unknown table": ("\n[volume]\n", ["volume"]),
    "an unknown key": ('[[volumes]]\nname = "a"\npath = "/a"\nfile = "b"\n', ["volumes[0].file"]),
    "a table of volumes": ('[volumes.ds]\nname = "a"\npath = "/a"\n', ["volumes"]),
    "a placeholder in a path": ('[[volumes]]\nname = "a"\npath = "/data/{env.HOME}"\n', ["volumes[0].path"]),
    "a placeholder in a subpath": (
        '[[volumes]]\nname = "a"\npath = "/a"\nsubpath = "{rank}"\n',
        ["volumes[0].subpath"],
    ),
    "an unknown key of a store": ('[stores]\nmain = {url = "s3://b", buckets = "c"}\n', ["stores.main.buckets"]),
    "no name": ('\n[[volumes]]\npath = "/a"\n', ["volumes[0].name"]),
    "no candidate": ('[[volumes]]\nname = []\npath = "/a"\n', ["volumes[0].name"]),
    "a bad candidate": ('[[volumes]]\nname = [\n  "a",\n  "b c",\n]\npath = "/a"\n', ["volumes[0].name[1]"]),
    "an unknown placeholder": ('[[volumes]]\nname = "a-{node}"\npath = "/a"\n', ["volumes[0].name[0]"]),
    "a placeholder that is not closed": ('[[volumes]]\nname = "a-{node_rank"\npath = "/a"\n', ["volumes[0].name[0]"]),
    "a variable that is not set": (
        '[[volumes]]\nname = "a-{env.COWFS_NEVER_SET}"\npath = "/a"\n',
        ["volumes[0].name[0]"],
    ),
    "a variable that is a secret": (
        '[[volumes]]\nname = "a-{env.GITHUB_TOKEN}"\npath = "/a"\n',
        ["volumes[0].name[0]"],
    ),
    "a host path that nobody is kept from writing to": (
        '[[volumes]]\nname = "/srv/data"\npath = "/a"\n',
        ["volumes[0].name[0]"],
    ),
    "a host path that is relative": (
        '[[volumes]]\nname = "./data"\npath = "/a"\nread_only = false\n',
        ["volumes[0].name[0]"],
    ),
    "a host path that leaves": (
        '[[volumes]]\nread_only = false\nname = "/srv/../etc"\npath = "/a"\n',
        ["volumes[0].name[0]"],
    ),
    "a host path in itself": (
        '[[volumes]]\nread_only = false\nname = "/srv"\npath = "/srv/data"\n',
        ["volumes[0].path"],
    ),
    "a host path in a store": (
        '[[volumes]]\nread_only = false\nname = "/srv/a"\npath = "/a"\nstore = "main"\n[stores]\nmain = "s3://b"\n',
        ["volumes[0].name[0]"],
    ),
    "a relative path": ('[[volumes]]\nname = "a"\npath = "data/x"\n', ["volumes[0].path"]),
    "a path that leaves": ('[[volumes]]\nname = "a"\npath = "/data/../etc"\n', ["volumes[0].path"]),
    "a path twice": (
        'volumes = [\n {name = "a", path = "/a"},\n {name = "b",\n  path = "/a//"},\n]\n'.replace(
            ",\n  path", ", path"
        ),
        ["volumes[1].path"],
    ),
    "a path in another": (
        '[[volumes]]\nname = "a"\npath = "/a/b"\n[[volumes]]\nname = "b"\npath = "/a"\n',
        ["volumes[1].path"],
    ),
    "a volume to write twice": (
        '[[volumes]]\nname = "a"\npath = "/a"\nread_only = false\n[[volumes]]\nread_only = false\nname = "a"\npath = "/b"\n',
        ["volumes[1].name"],
    ),
    "an unknown store": (
        '[[volumes]]\nname = "a"\npath = "/a"\nstore = "mian"\n[stores]\nmain = "s3://b"\n',
        ["volumes[0].store"],
    ),
    "a bad store": ('[stores]\n\nmain = "sftp://host/dir"\n', ["stores.main.url"]),
    "an endpoint without a scheme": (
        "[stores.m]\npreset = 'minio'\nbucket = 'b'\nendpoint = 'localhost:9000'\n",
        ["stores.m.endpoint"],
    ),
    "such an endpoint in a URL": ("[stores.m]\nurl = 's3://b;endpoint=localhost'\n", ["stores.m.url"]),
    "a URL without its colon": ("[stores]\nmain = 's3//bucket'\n", ["stores.main.url"]),
    "a store that is nowhere": ("[stores.main]\nregion = 'eu'\n", ["stores.main"]),
    "a store that is twice": ("[stores.main]\nurl = 's3://b'\npreset = 's3'\nbucket = 'b'\n", ["stores.main"]),
    "an unknown preset": ("[stores.main]\nbucket = 'b'\npreset = 'r3'\n", ["stores.main.preset"]),
    "a key of another preset": (
        "[stores.main]\npreset = 'wasabi'\nbucket = 'b'\nregion = 'x'\nkey_id = {env = 'A'}\n",
        ["stores.main.key_id"],
    ),
    "no account of a preset": ("\n[stores]\nmain = {preset = 'r2', bucket = 'b'}\n", ["stores.main"]),
    "a bad account": ("\n[stores.main]\npreset = 'r2'\nbucket = 'b'\naccount_id = 'a/b'\n", ["stores.main.preset"]),
    "a key without its other": ("[stores.main]\nurl = 's3://b'\naccess_key = {env = 'A'}\n", ["stores.main.url"]),
    "a secret": (
        "[stores.main]\nurl = 's3://b'\naccess_key = {env = 'A'}\nsecret_key = 'hunter2-and-more'\n",
        ["stores.main.secret_key"],
    ),
    "a secret in a table": (
        "[stores.main]\nurl = 's3://b'\nsecret_key = {value = 'hunter2-and-more'}\n",
        ["stores.main.secret_key.value"],
    ),
    "a secret in two places": (
        "[stores.main]\nurl = 's3://b'\nsecret_key = {env = 'A', file = 'b'}\n",
        ["stores.main.secret_key"],
    ),
    "credentials in a URL": ("[stores.main]\nurl = 's3://AKIA:hunter2-and-more@b'\n", ["stores.main.url"]),
    "a bad size": ('[[volumes]]\nname = "a"\npath = "/a"\nsize = "100 apples"\n', ["volumes[0].size"]),
    "a negative size": ('[[volumes]]\nname = "a"\npath = "/a"\nsize = -1\n', ["volumes[0].size"]),
    "a bad duration": ('[[volumes]]\nname = "a"\npath = "/a"\nidle_delete = "30"\n', ["volumes[0].idle_delete"]),
    "a duration of nothing": ('[[volumes]]\nname = "a"\npath = "/a"\nidle_delete = "0d"\n', ["volumes[0].idle_delete"]),
    "a text for a truth": ('[[volumes]]\nname = "a"\npath = "/a"\nread_only = "no"\n', ["volumes[0].read_only"]),
    "a folder to write": (
        '[[volumes]]\nname = "a"\npath = "/a"\nread_only = false\nsubpath = "b"\n',
        ["volumes[0].subpath"],
    ),
    "a folder that leaves": ('[[volumes]]\nname = "a"\npath = "/a"\nsubpath = "../b"\n', ["volumes[0].subpath"]),
    "a version to write": ('[[volumes]]\nread_only = false\npath = "/a"\nname = "a@v1"\n', ["volumes[0].name[0]"]),
    "several": (
        '[[volumes]]\nname = "a"\npath = "a"\nsize = "x"\n[[volumes]]\nname = "b"\n',
        ["volumes[0].path", "volumes[0].size", "volumes[1].path"],
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_each_kind_of_bad_file_names_its_keys(kind: str) -> None:
    text, keys = BAD[kind]
    error = refused(text)
    assert keys_of(error) == keys, error.message
    assert error.message.startswith(f"/project/cowfs.toml: {keys[0]}")
    assert "hunter2" not in f"{error}{error.hint}{error.details}{getattr(error, '__notes__', '')}", (
        "a secret is never repeated"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("volumes:\n  - name: a\n path: /a\n", "line 3: not valid YAML"),
        ("volumes:\n  - name: a\n    path: /a\n    name: b\n", "line 4: .*the key 'name' is there twice"),
        ("volumes:\n  - name: a\n    path: a\n", r"volumes\[0\].path: the mount path 'a' is relative"),
        ("volumes: []\nstores: {1: s3://b}\n", "line 2: .*a key that is no text"),
        ("volumes: []\n? [a]\n: b\n", "line 2: .*a key that is no text"),
        ("volumes: []\n---\nvolumes: []\n", "line 2: .*another document"),
        ("volumes: []\nwhen: 2026-13-45\n", "month must be"),
        ("volumes: []\nx: !!python/object:os.system {}\n", "line 2: .*could not determine a constructor"),
        ("volumes: []\nx: !!set {a, b}\n", "unknown key 'x'"),
        ("volumes: !!map [a]\n", "line 1: .*expected a mapping node"),
        ("volumes: !!set [a]\n", "line 1: .*expected a mapping node"),
        ("volumes: !!bool x\n", "not valid YAML: a value does not fit its tag"),
        ("volumes: !!timestamp x\n", "not valid YAML: a value does not fit its tag"),
        ('volumes: !!int ""\n', "not valid YAML: a value does not fit its tag"),
        ("a: &a [*a]\n", "line 1: .*aliases are not supported"),
        ("a: *b\n", "line 1: .*aliases are not supported"),
        ("volumes: []\nx: \x07\n", "special characters are not allowed"),
        ("- a\n", "no table of keys"),
        ("\n\na\n", "no table of keys"),
        ("base: &base\n  size: 1x\nvolumes:\n  - <<: *base\n", "line 4: .*aliases are not supported"),
    ],
)
def test_bad_yaml_is_refused(text: str, said: str) -> None:
    assert re.search(f"^/project/a.cowfs.yml: {said}|{said}", refused(text, "a.cowfs.yml").message)


@pytest.mark.parametrize("name", ["123", "1.5", "true", "2026-01-02", "[a, 123]"])
def test_a_name_that_is_no_text_wants_quotes(name: str) -> None:
    error = refused(f"volumes:\n  - name: {name}\n    path: /a\n", "a.cowfs.yml")
    assert keys_of(error)[0].startswith("volumes[0].name")
    assert "is no text" in error.message
    assert "in quotes" in error.hint


def test_the_example_of_an_endpoint_can_be_declared() -> None:
    said = "[stores.m]\npreset = 'minio'\nbucket = 'b'\nendpoint = '{}'\n"
    hint = refused(said.format("127.0.0.1:8333")).hint
    example = re.search(r"For example (\S+)\.", hint)
    assert example is not None, hint
    store = loading.parsed(said.format(example[1]).encode(), Path("/project/cowfs.toml"), Declared).stores["m"]
    assert isinstance(store, DeclaredStore)
    assert store.without_secrets().endpoint == example[1]


def test_a_path_of_this_machine_and_a_volume_of_a_store_are_candidates() -> None:
    text = '[[volumes]]\nname = ["/nvme/a", "a"]\npath = "/a"\nstore = "m"\nread_only = false\n[stores]\nm = "s3://b"\n'
    assert loading.parsed(text.encode(), Path("/project/cowfs.toml"), Declared).volumes[0].candidates == (
        "/nvme/a",
        "a",
    )


def test_a_small_file_cannot_become_a_huge_value() -> None:
    levels = [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]" for level in range(1, 12)]
    error = refused("\n".join(["l0: &l0 [x, x]", *levels]), "a.cowfs.yml")
    assert "aliases are not supported" in error.message
    for text, name in (("a = " + "[" * 5000 + "]" * 5000, "cowfs.toml"), ("a: " + "[" * 5000, "a.cowfs.yml")):
        assert "nested too deeply" in refused(text, name).message


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    with pytest.raises(InvalidInputError, match=r"cowfs\.toml: line 2: a byte that is not UTF-8"):
        loading.parsed(b"a = 1\nb = '\xff'\n", Path("/project/cowfs.toml"), Declared)


@pytest.mark.parametrize(
    "path", ["/", "/root", "/tmp", "/opt", "/usr", "/home", "/etc", "/usr/local", "/proc/1", "//usr//lib", "/var/"]
)
def test_paths_of_the_system_are_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="mount path"):
        DeclaredVolume(name="a", path=path)


@pytest.mark.parametrize(
    "path", ["/tmp/x", "/data/{a}", "/data", "/opt/data", "/mnt/a/b", "/usrlocal", "/home/me/data", "/root/data"]
)
def test_other_paths_are_taken(path: str) -> None:
    assert DeclaredVolume(name="a", path=path).mount_path == path


def test_names_take_what_is_known_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_RANK", raising=False)
    monkeypatch.setenv("SLURM_NODEID", "3")
    monkeypatch.setenv("TEAM", "red")
    volume = DeclaredVolume(name="{env.TEAM}-{node_rank}", path="/a")
    assert volume.candidates == ("red-3",)
    monkeypatch.setenv("NODE_RANK", "4")
    assert volume.candidates == ("red-4",), "the first variable counts"
    monkeypatch.setenv("TEAM", "no good name")
    with pytest.raises(InvalidInputError, match="is not a volume name"):
        DeclaredVolume(name="{env.TEAM}", path="/a")


# -- stores

R2 = """
[stores.main]
preset = "r2"
account_id = "a1"
bucket = "data"
prefix = "team/"
access_key = {env = "R2_KEY"}
secret_key = {file = "r2.secret"}
"""


def test_presets_are_those_of_cowfs_storage(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = loading.parsed(R2.encode(), project / "cowfs.toml", Declared)
    found = declared.stores["main"]
    assert isinstance(found, DeclaredStore)
    with pytest.raises(AccessDeniedError, match="R2_KEY, which access_key names, is not set"):
        found.storage()
    monkeypatch.setenv("R2_KEY", "the-key-id")
    with pytest.raises(AccessDeniedError, match=r"r2\.secret, which secret_key names, cannot be read"):
        found.storage()
    (project / "r2.secret").write_text("hunter2-and-more\n")
    made = found.storage()
    assert made == storage.R2("data", "team", account_id="a1", access_key="the-key-id", secret_key="hunter2-and-more")
    assert "hunter2" not in f"{declared!r}{declared}{made!r}{pickle.dumps(declared)!r}"


def test_each_preset_can_be_declared() -> None:
    keys = {
        "bucket": "b",
        "container": "b",
        "path": "/b",
        "account": "abc",
        "account_id": "a",
        "region": "r-1",
        "endpoint": "https://h",
    }
    for name, preset in storage.PRESETS.items():
        parameters = inspect.signature(preset).parameters.values()
        needed = {each.name: keys[each.name] for each in parameters if each.default is each.empty and each.name in keys}
        store = DeclaredStore.model_validate({"preset": name, **needed})
        assert store.storage() == preset(**needed)
        named = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
        assert named <= {*DeclaredStore.model_fields, "api_key"}, name
    with pytest.raises(InvalidInputError, match="api_key"):
        DeclaredStore(preset="hyperstack", bucket="b", api_key="k")  # type: ignore[call-arg]


def test_a_storage_is_a_store_as_it_is() -> None:
    given = storage.S3("b", access_key=lambda: "a", secret_key=lambda: "b")
    assert Declared(stores={"main": given}).stores["main"] is given
    with pytest.raises(InvalidInputError, match=r"DeclaredStore: secret_key: a secret does not stand"):
        DeclaredStore(url="s3://b", secret_key="hunter2-and-more")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="there is no preset 's3x'") as both:
        DeclaredStore(preset="s3x", secret_key="hunter2-and-more")  # type: ignore[arg-type]
    assert "a secret does not stand" in both.value.message


def test_versions_of_earlier_are_no_placeholders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM", "blue")
    for text, name in (
        ("data@{3}", "data@{3}"),
        ("{env.TEAM}@{2026-11-20T12:00}", "blue@{2026-11-20T12:00}"),
        ("data@{env.TEAM}", "data@blue"),
    ):
        assert DeclaredVolume(name=text, path="/a").candidates == (name,)
    for wrong in ("data{3}", "data@{three}", "data@{3"):
        with pytest.raises(InvalidInputError):
            DeclaredVolume(name=wrong, path="/a")


def test_secrets_of_the_environment_are_named_not_copied(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "cowfs.toml").write_text('stores = {main = "s3://a"}\n')
    monkeypatch.setenv("COWFS_STORES__MAIN__ACCESS_KEY", "the-key-id")
    monkeypatch.setenv("COWFS_STORES__MAIN__SECRET_KEY", "hunter2-and-more")
    monkeypatch.setenv("COWFS_STORES__MAIN__PATH_STYLE", "true")
    found = Declared.load().stores["main"]
    assert "hunter2" not in repr(found)
    assert isinstance(found, DeclaredStore)
    assert found.storage() == storage.S3("a", access_key="the-key-id", secret_key="hunter2-and-more", path_style=True)


# -- which file


def test_the_nearest_file_is_taken_and_the_users_gives_stores(project: Path) -> None:
    with pytest.raises(NotFoundError, match="no file declares volumes here"):
        Declared.load()
    own = loading.user_file()
    own.parent.mkdir(parents=True)
    own.write_text(
        'volumes = [{name = "mine", path = "/mine", store = "shared"}]\n[stores]\nshared = "s3://own"\nother = "s3://other"\n'
    )
    assert [each.name for each in Declared.load().volumes] == [("mine",)]
    (project / "cowfs.toml").write_text(
        'volumes = [{name = "a", path = "/a", store = "shared"}]\n[stores]\nother = "s3://ours"\n'
    )
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    os.chdir(below)
    found = Declared.load()
    assert found.file == project / "cowfs.toml"
    assert [each.name for each in found.volumes] == [("a",)]
    assert {name: each.url for name, each in found.stores.items()} == {"shared": "s3://own", "other": "s3://ours"}
    (below / "job.cowfs.yml").write_text("volumes: []\n")
    assert Declared.load().file == below / "job.cowfs.yml"
    (below / "cowfs.toml").write_text("")
    with pytest.raises(InvalidInputError, match=r"several files .* cowfs\.toml, job\.cowfs\.yml"):
        Declared.load()
    assert Declared.load(below / "job.cowfs.yml").volumes == ()


def test_an_error_names_the_file_that_holds_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = loading.user_file()
    own.parent.mkdir(parents=True)
    own.write_text('\n[stores]\nshared = {url = "s3://own", bad = 1}\n')
    (project / "cowfs.toml").write_text("")
    with pytest.raises(InvalidInputError, match=r"volumes\.toml: stores\.shared\.bad: unknown key"):
        Declared.load()
    own.unlink()
    (project / "cowfs.toml").write_text('[stores]\nmy-main = "s3://a"\n')
    monkeypatch.setenv("COWFS_STORES__MY_MAIN__URL", "s3://b")
    monkeypatch.setenv("COWFS_STORES__NEW__URL", "s3://c")
    assert {name: each.url for name, each in Declared.load().stores.items()} == {"my-main": "s3://b", "new": "s3://c"}
    monkeypatch.setenv("COWFS_STORES__NEW__URLS", "s3://c")
    with pytest.raises(
        InvalidInputError, match=r"environment variable COWFS_STORES__NEW__URLS: stores\.new\.urls: unknown key"
    ):
        Declared.load()


def test_a_file_can_be_named_by_the_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "cowfs.toml").write_text("volumes = [1]")
    (project / "other.toml").write_text("")
    monkeypatch.setenv("COWFS_DECLARED", "other.toml")
    assert Declared.load().file == project / "other.toml"
    with pytest.raises(NotFoundError, match="there is no file"):
        Declared.load("missing.toml")


def test_a_found_file_makes_no_server_a_trusted_one(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'stores = {evil = "s3://b;endpoint=https%3A%2F%2Fevil.example/p", spoken = "s3://c"}\n'
    text += 'volumes = [{name = "a", path = "/a", store = "evil"}, {name = "a", path = "/b", store = "own"}]\n'
    (project / "cowfs.toml").write_text(text)
    own = loading.user_file()
    own.parent.mkdir(parents=True)
    own.write_text('stores = {own = "s3://b;endpoint=https%3A%2F%2Fown.example/p"}\n')
    monkeypatch.setenv("COWFS_STORES__SPOKEN__ENDPOINT", "https://spoken.example")
    found = Declared.load()
    assert [name for name in sorted(found.stores) if found.is_named(name)] == ["own", "spoken"]
    for volume in found.volumes:
        targets.store_of(found, volume)
    assert config.load_endpoints() == ["https://own.example:443"]
    monkeypatch.delenv("COWFS_STORES__SPOKEN__ENDPOINT")
    evil = "s3://b;endpoint=https%3A%2F%2Fevil.example/p"
    for keys, said in (
        ("access_key = {env = 'A'}, secret_key = {env = 'B'}", "sends credentials to https://evil.example:443"),
        ("credential_process = 'touch ran'", "runs a command"),
    ):
        text = f'volumes = [{{name = "a", path = "/a", store = "evil"}}]\nstores.evil = {{url = "{evil}", {keys}}}\n'
        (project / "cowfs.toml").write_text(text)
        found = Declared.load()
        with pytest.raises(AccessDeniedError, match=said):
            found.plan(mounts=False)
    assert not (project / "ran").exists()
    (project / "cowfs.toml").write_text(
        f'volumes = [{{name = "a", path = "/a", store = "evil"}}]\nstores.evil = "{evil}"\n'
    )
    named = Declared.load("cowfs.toml")
    targets.store_of(named, named.volumes[0])
    assert "https://evil.example:443" in config.load_endpoints()


def test_volumes_that_are_a_table_are_told_how_a_list_is_written() -> None:
    error = refused('[volumes.ds]\nname = "a"\npath = "/a"\n')
    assert "is not a list" in error.message
    assert "[[volumes]]" in error.hint


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join), min_size=1, max_size=5))
def test_no_path_lies_in_another(below: list[str]) -> None:
    paths = [f"/data/{each}" for each in below]
    wrong = {
        f"volumes[{index}].path"
        for index, path in enumerate(paths)
        for other in paths[:index]
        if f"{path}/".startswith(f"{other}/") or other.startswith(f"{path}/")
    }
    text = "".join(f'[[volumes]]\nname = "v{index}"\npath = "{path}"\n' for index, path in enumerate(paths))
    if wrong:
        assert {key for key in keys_of(refused(text)) if key.endswith("path")} == wrong
    else:
        loading.parsed(text.encode(), Path("/project/cowfs.toml"), Declared)
