"""Authorities and proxies: what sends requests in a forked child heeds the same as obstore does."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cowfs.errors import CowfsError, InvalidInputError, UnavailableError
from cowfs.store import open_store
from cowfs.store.backends import network
from cowfs.store.backends.s3 import s3_by_obstore, s3_place
from cowfs.store.backends.s3.s3_errors import Misconfigured
from tests.store.conftest import WarpClock
from tests.store.scripted_server import Answer, Request, ScriptedServer, response
from tests.store.test_s3_place import url

VARIABLES = (
    *("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_CONFIG_FILE", "AWS_PROFILE"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    "REQUEST_METHOD",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-at-all")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(params=["obstore", "s3fs"])
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "s3fs":
        monkeypatch.setattr(s3_by_obstore, "is_usable", lambda: False)
    return name


def value(request: Request) -> Answer:
    return response("200 OK", b"value").replace(
        b"\r\n\r\n", b'\r\nETag: "1"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n', 1
    ), True


def got(server: ScriptedServer) -> bytes:
    store = open_store(url(server))
    try:
        return store.get("key")
    finally:
        store.close()


# -- authorities


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuers: ec.EllipticCurvePrivateKey, days: int
) -> x509.Certificate:
    """One of an authority is as a company's may be: without what RFC 5280 wants of it."""
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]),
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]),
        key.public_key(),
        x509.random_serial_number(),
        now - timedelta(days=2),
        now + timedelta(days=days),
    )
    made = made.add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=False)
    if name != issuer:
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(name))])
        made = made.add_extension(names, critical=False)
    return made.sign(issuers, hashes.SHA256())


class Authority:
    """file: its certificate."""

    def __init__(self, directory: Path, name: str = "company") -> None:
        self._directory, self._name = directory, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / "authority.pem"
        self.file.write_bytes(pem(certificate(name, self._key, name, self._key, 1)))

    def server(self, name: str = "127.0.0.1", days: int = 1) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file = self._directory / f"{name} {days}.pem"
        file.write_bytes(pem(certificate(name, key, self._name, self._key, days)) + key.private_bytes(*form))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "ca").mkdir()
    return Authority(tmp_path / "ca")


@pytest.fixture
def safe(authority: Authority) -> Iterator[ScriptedServer]:
    with ScriptedServer(value, tls=authority.server()) as server:
        yield server


@pytest.mark.parametrize("how", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "ca_bundle"])
def test_an_authority_is_trusted_by_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sender: str, authority: Authority, safe: ScriptedServer, how: str
) -> None:
    if how == "SSL_CERT_DIR":
        monkeypatch.setenv(how, str(authority.file.parent))
    elif how == "ca_bundle":
        (tmp_path / "config").write_text(f"[default]\nca_bundle = {authority.file}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    else:
        monkeypatch.setenv(how, str(authority.file))
    assert got(safe) == b"value"


@pytest.mark.parametrize("sender", ["s3fs"], indirect=True)
def test_the_systems_authorities_are_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sender: str, authority: Authority, safe: ScriptedServer
) -> None:
    """obstore looks by itself where systems have them."""
    monkeypatch.setattr(network, "_BUNDLES", (str(tmp_path / "none"), str(authority.file)))
    assert got(safe) == b"value"


@pytest.mark.parametrize("sender", ["s3fs"], indirect=True)
@pytest.mark.parametrize("has_users", [False, True])
def test_openssls_own_authorities_are_trusted_where_the_system_has_no_bundle(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sender: str,
    authority: Authority,
    safe: ScriptedServer,
    has_users: bool,
) -> None:
    def load(self: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        self.load_verify_locations(authority.file)

    (tmp_path / "other").mkdir()
    monkeypatch.setattr(network, "_BUNDLES", (str(tmp_path / "none"),))
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", load)
    if has_users:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(Authority(tmp_path / "other", "other").file))
    assert got(safe) == b"value"


def test_a_bundle_is_trusted_besides_the_systems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sender: str, authority: Authority, safe: ScriptedServer
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(Authority(tmp_path / "other", "other").file))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "not looked at"))
    assert got(safe) == b"value"


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_a_bundle_may_be_a_directory(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sender: str,
    authority: Authority,
    safe: ScriptedServer,
    variable: str,
) -> None:
    """As /etc/ssl/certs is: of more than certificates."""
    directory = authority.file.parent
    (tmp_path / "other").mkdir()
    (directory / "a.pem").write_bytes(Authority(tmp_path / "other", "other").file.read_bytes().rstrip())
    (directory / "README").write_text("no certificate")
    (directory / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n")
    (directory / "gone.pem").symlink_to("nowhere")
    (directory / "java").mkdir()
    monkeypatch.setenv(variable, str(directory))
    assert got(safe) == b"value"


@pytest.mark.parametrize("what", ["missing", "directory", "garbage", "broken"])
def test_a_bundle_of_other_programs_that_cannot_be_read_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    sender: str,
    authority: Authority,
    what: str,
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "garbage").write_text("no certificate")
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / what))
    with caplog.at_level("WARNING", "cowfs.store"), ScriptedServer(value, tls=authority.server()) as safe:
        assert got(safe) == b"value"
        assert got(safe) == b"value"
    assert caplog.text.count(f"REQUESTS_CA_BUNDLE: certificates cannot be read from {tmp_path / what}") == 1


@pytest.mark.parametrize("what", ["missing", "directory", "garbage"])
@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "ca_bundle", "SSL_CERT_FILE"])
def test_what_holds_no_certificates_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sender: str, safe: ScriptedServer, what: str, variable: str
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "garbage").write_text("no certificate")
    if variable == "ca_bundle":
        (tmp_path / "config").write_text(f"[default]\nca_bundle = {tmp_path / what}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    else:
        monkeypatch.setenv(variable, str(tmp_path / what))
    with pytest.raises(InvalidInputError, match=f"{variable}.*: .*{tmp_path / what}") as caught:
        got(safe)
    assert variable in caught.value.hint
    assert not safe.requests


@pytest.mark.parametrize(
    ("name", "days", "is_known"), [("127.0.0.1", 1, False), ("127.0.0.1", -1, True), ("127.0.0.2", 1, True)]
)
def test_a_certificate_that_is_not_accepted(
    warp: WarpClock,
    monkeypatch: pytest.MonkeyPatch,
    sender: str,
    authority: Authority,
    name: str,
    days: int,
    is_known: bool,
) -> None:
    if is_known:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.file))
    with ScriptedServer(value, tls=authority.server(name, days)) as server:
        with pytest.raises(UnavailableError, match="certificate is not accepted") as caught:
            got(server)
        assert "AWS_CA_BUNDLE" in caught.value.hint
        assert not server.requests


def test_retry_after_is_heard_behind_an_authority_of_its_own(
    warp: WarpClock, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    busy = response("503 Slow Down").replace(b"\r\n\r\n", b"\r\nRetry-After: 17\r\n\r\n", 1)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.file))
    with ScriptedServer(lambda request: (busy, True), tls=authority.server()) as server:
        with pytest.raises(CowfsError) as caught:
            got(server)
        assert caught.value.details["status"] == 503
        assert "HEAD" in {request.method for request in server.requests}


# -- proxies


@pytest.mark.parametrize(
    ("variables", "asked", "proxy"),
    [
        ({}, "https://host/b", None),
        ({"https_proxy": "http://p:1"}, "https://host/b", "http://p:1"),
        ({"https_proxy": "http://p:1"}, "http://host/b", None),
        ({"HTTP_PROXY": "p:1"}, "http://host/b", "http://p:1"),
        ({"HTTP_PROXY": "p:1", "REQUEST_METHOD": "GET"}, "http://host/b", None),
        ({"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1"}, "https://host/b", "http://lower:1"),
        ({"ALL_PROXY": "http://p:1"}, "https://host/b", "http://p:1"),
        ({"all_proxy": "http://p:1", "https_proxy": "http://q:1"}, "https://host/b", "http://q:1"),
    ],
)
def test_which_proxy(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], asked: str, proxy: str | None) -> None:
    for name, what in variables.items():
        monkeypatch.setenv(name, what)
    assert network.proxy_of(asked) == proxy


@pytest.mark.parametrize(
    ("entry", "asked", "is_near"),
    [
        ("*", "https://10.1.2.3/b", True),
        ("other, host.org", "https://host.org/b", True),
        ("host.org", "https://bucket.host.org/b", True),
        (".host.org", "https://bucket.host.org/b", True),
        ("*.host.org", "https://bucket.host.org/b", True),
        ("HOST.org", "https://Host.Org/b", True),
        ("host.org", "https://myhost.org/b", False),
        ("host.org:9000", "https://host.org:9000/b", True),
        ("host.org:9000", "https://host.org/b", False),
        ("host.org:443", "https://host.org/b", True),
        ("10.0.0.0/8", "https://10.1.2.3:9000/b", True),
        ("10.0.0.0/8", "https://11.1.2.3/b", False),
        ("10.1.2.3", "https://10.1.2.3/b", True),
        ("10.1.2.3:1", "https://10.1.2.3/b", False),
        ("::1", "https://[::1]:9000/b", True),
        ("[::1]:9000", "https://[::1]:9000/b", True),
        ("fd00::/8", "https://[fd00::1]/b", True),
        (",", "https://host.org/b", False),
    ],
)
def test_what_is_asked_directly(monkeypatch: pytest.MonkeyPatch, entry: str, asked: str, is_near: bool) -> None:
    monkeypatch.setenv("https_proxy", "http://p:1")
    monkeypatch.setenv("no_proxy", entry)
    assert (network.proxy_of(asked) is None) == is_near


@pytest.mark.parametrize("proxy", ["garbage:::x", "socks5://p:1", "http://", "http://user:secret@p:port"])
def test_what_is_no_proxy_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(Misconfigured, match="HTTPS_PROXY") as caught:
        network.proxy_of("https://host/b")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("near", ["", "127.0.0.0/8", "*", "127.0.0.1:PORT", "127.0.0.1:1"])
@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_both_go_through_it_or_directly(monkeypatch: pytest.MonkeyPatch, sender: str, variable: str, near: str) -> None:
    with ScriptedServer(value) as server, ScriptedServer(value) as proxy:
        monkeypatch.setenv(variable, proxy.endpoint.replace("//", "//us%40er:pass@"))
        monkeypatch.setenv("no_proxy", near.replace("PORT", server.endpoint.rpartition(":")[2]))
        assert got(server) == b"value"
        is_direct = near not in ("", "127.0.0.1:1")
        assert (len(server.requests), len(proxy.requests)) == ((1, 0) if is_direct else (0, 1))
        if not is_direct:
            assert proxy.requests[0].target == f"{server.endpoint}/cowfs/stores/key"
            assert proxy.requests[0].headers["proxy-authorization"] == "Basic dXNAZXI6cGFzcw=="


@pytest.mark.parametrize("status", ["407 Proxy Authentication Required", "403 Forbidden", "502 Bad Gateway"])
def test_a_proxy_that_does_not_connect_is_named(
    warp: WarpClock, monkeypatch: pytest.MonkeyPatch, sender: str, safe: ScriptedServer, status: str
) -> None:
    with ScriptedServer(lambda request: (response(status), True)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.endpoint.replace("//", "//user:secret@"))
        with pytest.raises(UnavailableError, match="proxy") as caught:
            got(safe)
        assert "https_proxy" in caught.value.hint
        assert "secret" not in str(caught.value)
        assert {request.method for request in proxy.requests} == {"CONNECT"}


def test_retry_after_is_heard_through_a_proxy(warp: WarpClock, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = response("503 Slow Down").replace(b"\r\n\r\n", b"\r\nRetry-After: 17\r\n\r\n", 1)
    with ScriptedServer(value) as server, ScriptedServer(lambda request: (busy, True)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.endpoint)
        with pytest.raises(CowfsError) as caught:
            got(server)
        assert caught.value.details["status"] == 503
        assert "HEAD" in {request.method for request in proxy.requests}
        assert not server.requests


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_speaks_tls_is_told_nothing_in_the_clear(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    with ScriptedServer(value) as proxy:
        monkeypatch.setenv("all_proxy", proxy.endpoint.replace("http://", "https://user:secret@"))
        connection, target, headers = network.connection(f"{scheme}://host.invalid/b", 5.0)
        with pytest.raises(OSError, match="nothing is asked"):
            connection.request("HEAD", target, headers=headers)
        assert s3_place.region_of("bucket") is None
        assert not s3_place.wants_https(s3_place.place_of("b", "", "http://host.invalid", None, path_style=True))
    assert not proxy.requests
