"""S3: what its answers mean, that a conditional put is sent once, that waiting has an end, and that
no secret is told."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from cowfs.base import clock
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
    UnavailableError,
)
from cowfs.store import ObjectStore, initialize, open_store
from cowfs.store.backends.s3 import s3_by_obstore
from cowfs.store.backends.s3.s3_errors import CredentialsFailed, Refused, from_failure
from cowfs.store.backends.s3.s3_store import S3Store
from cowfs.store.reliability import patience
from tests.seaweedfs import SeaweedFS
from tests.store.conftest import PatientClock
from tests.store.scripted_server import STORED, Answer, Request, ScriptedServer, response

SECRET = "not-a-secret-at-all"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))


def s3_url(endpoint: str, bucket: str = "cowfs") -> str:
    return f"s3://{bucket};endpoint={quote(endpoint, safe='')};region=us-east-1/stores"


def assert_all_raise(store: ObjectStore, expected: type[CowfsError], match: str) -> None:
    for call in (
        lambda: store.get("key"),
        lambda: store.get_range("key", 0, 1),
        lambda: store.list("", limit=1),
        lambda: store.put("key", b"x"),
        lambda: store.put_if_absent("key", b"x"),
        lambda: store.delete(["key"]),
    ):
        with pytest.raises(expected, match=match) as caught:
            call()
        assert caught.value.hint
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)
    store.close()


@pytest.mark.s3
def test_missing_bucket(seaweedfs: SeaweedFS) -> None:
    store = open_store(s3_url(seaweedfs.endpoint, "no-such-bucket"))
    assert_all_raise(store, NotFoundError, "bucket does not exist")
    with pytest.raises(NotFoundError, match="bucket does not exist"):
        initialize(store)
    store.close()


@pytest.mark.s3
@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_keys(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "wrong")
    assert_all_raise(open_store(s3_url(seaweedfs.endpoint)), AccessDeniedError, "s3://cowfs")


@pytest.mark.s3
def test_no_keys(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert_all_raise(open_store(s3_url(seaweedfs.endpoint)), AccessDeniedError, "credentials")


def test_nobody_listens(patient_clock: PatientClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    store = open_store(s3_url(endpoint))
    with pytest.raises(UnavailableError, match="does not answer") as caught:
        store.get("key")
    assert "endpoint" in caught.value.hint
    assert sum(patient_clock.waited_s) <= 60
    with pytest.raises(UnavailableError):
        store.put_if_absent("key", b"x")
    store.close()


def test_unknown_host(patient_clock: PatientClock) -> None:
    store = open_store(s3_url("http://no-such-host.invalid:8333"))
    with pytest.raises(UnavailableError, match="does not answer"):
        store.list("")
    store.close()


def raw_store(server: ScriptedServer) -> S3Store:
    return S3Store(bucket="cowfs", prefix="", url="s3://cowfs", endpoint=server.endpoint, region="us-east-1")


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts the connection and never answers, or takes the beginning of a body and no more:
    that has an end."""
    monkeypatch.setattr(s3_by_obstore, "SILENCE_S", 0.3)
    monkeypatch.setattr(s3_by_obstore, "FIRST_BYTES_PER_S", 1 << 40)
    done = threading.Event()

    def answer(request: Request) -> Answer:
        done.wait()
        return b"", False

    with ScriptedServer(answer) as server:
        store = raw_store(server)
        try:
            for call in (
                lambda: store.get("key"),
                lambda: store.put_if_absent("key", b"x"),
                lambda: store.put("key", bytes(32 << 20)),
            ):
                with pytest.raises(UnavailableError):
                    call()
        finally:
            done.set()
            store.close()


def test_a_user_who_grants_less_ends_what_only_asks_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """What carries a body keeps its time: a slow link is no silence."""
    monkeypatch.setenv("COWFS_STORE_TIMEOUT", "0.4")
    monkeypatch.setattr(patience, "SHORTEST_SILENCE_S", 0.2)

    def answer(request: Request) -> Answer:
        time.sleep(1.0)
        return STORED, True

    with ScriptedServer(answer) as server:
        store = raw_store(server)
        with pytest.raises(UnavailableError, match="in time"):
            store.get("key")
        store.put("key", b"x")
        store.close()


def test_a_slow_body_has_as_long_as_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending takes several times the time that silence may last."""
    monkeypatch.setattr(s3_by_obstore, "SILENCE_S", 2.0)
    body = bytes(range(256)) * (8 << 10)

    def take(stream: BinaryIO, length: int) -> bytes:
        pieces = []
        for start in range(0, length, 64 << 10):
            time.sleep(0.2)
            pieces.append(stream.read(min(64 << 10, length - start)))
        return b"".join(pieces)

    with ScriptedServer(lambda request: (STORED, True), take=take, buffer_bytes=32 << 10) as server:
        store = raw_store(server)
        began_s = time.monotonic()
        store.put("key", body)
        assert time.monotonic() - began_s > 3 * 2.0
        assert [request.body for request in server.requests] == [body]
        store.close()


def test_a_conditional_put_is_sent_once() -> None:
    """A kept connection breaks after the request: repeating it could be refused by what the first
    one wrote (pitfalls 3)."""

    def answer(request: Request) -> Answer:
        return (b"", False) if request.method == "PUT" else (response("200 OK"), True)

    with ScriptedServer(answer) as server:
        store = raw_store(server)
        assert store.get("warm") == b""
        with pytest.raises(UnavailableError):
            store.put_if_absent("key", b"the record")
        assert [request.body for request in server.requests if request.method == "PUT"] == [b"the record"]
        store.close()


@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Slow Down", "429 Too Many Requests"])
def test_a_busy_server_is_asked_once_by_each_call(status: str) -> None:
    body = b"<Error><Code>SlowDown</Code><Message>reduce your request rate</Message></Error>"
    with ScriptedServer(lambda request: (response(status, body), True)) as server:
        store = raw_store(server)
        with pytest.raises(UnavailableError, match="reduce your request rate"):
            store.put_if_absent("key", b"x")
        assert [request.method for request in server.requests if request.body] == ["PUT"]
        store.close()


def test_bodies_cut_short_and_garbage() -> None:
    answers = {
        "/cowfs/cut": (response("200 OK", b"half", claimed_length=8), False),
        "/cowfs/less": (response("206 Partial Content", b"half"), True),
        "/cowfs/more": (response("200 OK", b"the whole object"), True),
        "/cowfs/noise": (b"what is HTTP?\r\n\r\n", False),
        "/cowfs/html": (response("502 Bad Gateway", b"<html><body>proxy</html>"), True),
    }
    with ScriptedServer(lambda request: answers[request.target]) as server:
        store = raw_store(server)
        for key in ("cut", "noise", "html"):
            with pytest.raises(UnavailableError):
                store.get(key)
        for key in ("less", "more"):
            with pytest.raises(CorruptError, match=f"{key} gave"):
                store.get_range(key, 0, 8)
        store.close()


@contextmanager
def listening(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Host and port of a server that is no HTTP server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with suppress(OSError), connection:
                        talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"localhost:{listener.getsockname()[1]}"
        # Else the kernel may begin its accept anew, with whichever listener has this number by then.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("answer", [response("400 Bad Request", b""), b""])
def test_a_server_without_tls_is_said_to_have_none(patient_clock: PatientClock, answer: bytes) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(answer)

    with listening(talk) as place:
        store = open_store(s3_url(f"https://{place}"))
        with pytest.raises(UnavailableError, match="does not speak TLS"):
            store.get("key")
        store.close()


def own_certificate() -> bytes:
    """For localhost, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]), datetime.now(UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
    signed = built.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False).sign(key, SHA256())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + signed.public_bytes(Encoding.PEM)


def test_a_certificate_of_nobody_known_is_named(patient_clock: PatientClock, tmp_path: Path) -> None:
    (tmp_path / "both").write_bytes(own_certificate())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both")
    with listening(lambda connection: context.wrap_socket(connection, server_side=True).close()) as place:
        store = open_store(s3_url(f"https://{place}"))
        with pytest.raises(UnavailableError, match="its certificate is not accepted: "):
            store.get("key")
        store.close()


@pytest.mark.parametrize("odd", [b"volumes//b", b"volumes/c/../d"])
def test_keys_of_somebody_else_do_not_hide_ours(odd: bytes) -> None:
    """obstore refuses the whole list that has them."""
    keys = [b"volumes/a", odd, b"volumes/e"]
    entry = b"<Contents><Key>%s</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>3</Size></Contents>"
    body = b"<ListBucketResult>" + b"".join(entry % key for key in keys) + b"</ListBucketResult>"
    with ScriptedServer(lambda request: (response("200 OK", body), True)) as server:
        store = raw_store(server)
        assert {info.key for info in store.list("volumes/")} >= {"volumes/a", "volumes/e"}
        store.close()


def test_a_page_of_a_proxy_is_no_list() -> None:
    with ScriptedServer(lambda request: (response("200 OK", b"<html><p>Please log in</html>"), True)) as server:
        store = raw_store(server)
        with pytest.raises(UnavailableError):
            store.list("volumes/")
        store.close()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("PreconditionFailed", 412, ConflictError),
        ("412", 412, ConflictError),
        ("ConditionalRequestConflict", 409, UnavailableError),
        ("AccessDenied", 403, AccessDeniedError),
        ("ExpiredToken", 400, AccessDeniedError),
        ("403", 403, AccessDeniedError),
        ("NoSuchBucket", 404, NotFoundError),
        ("NoSuchKey", 404, NotFoundError),
        ("404", 404, NotFoundError),
        ("InvalidRange", 416, CorruptError),
        ("AuthorizationHeaderMalformed", 400, InvalidInputError),
        ("PermanentRedirect", 301, InvalidInputError),
        ("NotImplemented", 501, InvalidInputError),
        ("XMinioStorageFull", 507, NoSpaceError),
        ("InsufficientStorage", 507, NoSpaceError),
        ("InternalError", 500, UnavailableError),
        ("SlowDown", 503, UnavailableError),
        ("SomethingNew", 418, UnavailableError),
    ],
)
def test_meaning_of_answers(code: str, status: int, expected: type[CowfsError]) -> None:
    error = from_failure(Refused(status, code, "said so."), url="s3://bucket", key="a/key")
    assert type(error) is expected
    assert "s3://bucket" in error.message
    assert error.details == {"key": "a/key", "code": code, "status": status}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("code", "status", "word"), [("", 413, "20 MiB"), ("SignatureDoesNotMatch", 403, "Host header")]
)
def test_what_a_proxy_before_the_server_may_be_to_blame_for(code: str, status: int, word: str) -> None:
    assert word in from_failure(Refused(status, code), url="s3://bucket", key="key").hint


@pytest.mark.parametrize(
    ("code", "status", "word"), [("InvalidObjectState", 403, "restore"), ("KMS.DisabledException", 400, "KMS")]
)
def test_what_no_other_credentials_help_against_says_so(code: str, status: int, word: str) -> None:
    error = from_failure(Refused(status, code), url="s3://bucket", key="key")
    assert word in error.hint
    assert "AWS_" not in error.hint
    assert "credentials" not in error.hint


@pytest.mark.quick
def test_missing_credentials_are_a_matter_of_access() -> None:
    assert type(from_failure(CredentialsFailed("expired"), url="s3://b", key="k")) is AccessDeniedError


@pytest.mark.s3
@pytest.mark.slow
def test_a_restarted_server_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class RestartingClock(clock.SystemClock):
        """The first wait of a repeated call lasts until the server is back, however long a busy
        machine takes for it."""

        waits = 0

        def sleep_s(self, seconds: float) -> None:
            self.waits += 1
            if self.waits == 1:
                server.start()
            else:  # it answers, but may not have all its parts together yet
                super().sleep_s(seconds)

    with SeaweedFS(tmp_path / "server") as server:
        store = open_store(server.store_url)
        store.patience.limit_s = 600.0
        store.put("before", b"kept")
        server.kill()
        waiting = RestartingClock()
        monkeypatch.setattr(clock, "current", waiting)
        try:
            assert store.get("before") == b"kept"
            store.put("after", b"x")
            assert [info.key for info in store.list("")] == ["after", "before"]
            assert waiting.waits >= 1
        finally:
            store.close()
