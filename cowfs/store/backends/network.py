"""How requests to S3 leave this machine, the same for obstore, s3fs and our own requests: which
authorities may sign a server's certificate, and which proxy is used.

    authorities    the system's, or those of SSL_CERT_FILE and SSL_CERT_DIR in their place (obstore finds these by itself);
                   besides, those of the user's bundle: AWS_CA_BUNDLE, ca_bundle of AWS' configuration, REQUESTS_CA_BUNDLE;
                   a file of PEM, or a directory of such files
    proxy          https_proxy or http_proxy, by the URL's scheme, else all_proxy; none for hosts that no_proxy names.
                   If a name is set in lower and in upper case, the lower one counts, as with curl

Certificates are read as obstore does it: any certificate of a bundle is trusted, even if it is not
a root, or lacks properties that RFC 5280 requires of an authority's.
"""

from __future__ import annotations

import base64
import http.client
import os
import ssl
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from cowfs.base import log
from cowfs.store.backends.s3.s3_errors import Misconfigured
from cowfs.store.credentials import aws

_log = log.get("store")

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Arch, Alpine
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, Red Hat
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",
)
_PORTS = {"http": 80, "https": 443}


# -- authorities


def users_bundle() -> bytes | None:
    """PEM. Misconfigured: it holds no certificates."""
    files = _users_files()
    return b"\n".join(map(Path.read_bytes, files)) if files else None


def trust(context: ssl.SSLContext) -> None:
    """Makes `context` trust all authorities. Misconfigured: a variable names none."""
    users, systems = _files()
    for path in dict.fromkeys((*users, *systems)):
        with suppress(OSError):  # of the system's, which nothing has looked at
            context.load_verify_locations(path)
    if not systems and not _is_replaced():
        context.load_default_certs()
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT


def authorities() -> str | None:
    """One of the files that `trust` loads; None: this machine has none. Misconfigured."""
    users, systems = _files()
    return next(map(str, (*users, *systems)), None)


def _files() -> tuple[list[Path], list[Path]]:
    """The user's files, and the system's or their replacements. As with obstore, a replacement may
    be missing if the user's files exist."""
    users = _users_files()
    if not _is_replaced():
        return users, [Path(path) for path in _BUNDLES if os.path.exists(path)][:1]
    found, problem = list[Path](), None
    file, directories = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR", "").split(os.pathsep)
    for name, files in (
        ("SSL_CERT_FILE", [Path(file)] if file else []),
        *(("SSL_CERT_DIR", _below(Path(directory))) for directory in directories if directory),
    ):
        try:
            found += _holding(name, files)
        except Misconfigured as error:
            problem = problem or error
    if problem is not None and not users and not found:
        raise problem
    return users, found


def _is_replaced() -> bool:
    return bool(os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"))


def _users_files() -> list[Path]:
    for name, path in (
        ("AWS_CA_BUNDLE", os.environ.get("AWS_CA_BUNDLE")),
        ("ca_bundle in AWS' configuration", aws.settings().ca_bundle),
    ):
        if path:
            return _holding(name, _list_files(Path(path)))
    if path := os.environ.get("REQUESTS_CA_BUNDLE"):
        try:
            return _holding("REQUESTS_CA_BUNDLE", _list_files(Path(path)))
        except Misconfigured as problem:  # the variable is neither ours nor AWS'
            _warn(str(problem))
    return []


@lru_cache
def _warn(problem: str) -> None:
    """Once."""
    _log.warning("%s", problem)


def _holding(name: str, files: list[Path]) -> list[Path]:
    """Those with certificates, each once for all links to it. Misconfigured: none of them has
    any."""
    found, problem = dict[tuple[int, int], Path](), None
    for file in files:
        try:
            of_file = file.stat()
            inode = of_file.st_dev, of_file.st_ino
            if inode not in found:
                _check(file, of_file.st_mtime_ns, of_file.st_size)
                found[inode] = file
        except OSError as error:  # ssl's errors are
            problem = problem or _unreadable(name, file, error)
    if problem is not None and not found:
        raise problem
    return list(found.values())


@lru_cache(1024)
def _check(path: Path, mtime_ns: int, size: int) -> None:
    """OSError: it holds no certificates."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)


def _list_files(path: Path) -> list[Path]:
    """The file itself; those of a directory."""
    return _below(path) if os.path.isdir(path) else [path]


def _below(directory: Path) -> list[Path]:
    """The files there; itself, for the error, if it cannot be listed."""
    try:
        return sorted(path for path in directory.iterdir() if os.path.isfile(path)) or [directory]
    except OSError:
        return [directory]


def _unreadable(name: str, path: Path, error: OSError) -> Misconfigured:
    why = "it holds no certificates (PEM)" if isinstance(error, ssl.SSLError) else error.strerror
    return Misconfigured(f"certificates cannot be read from {path}: {why}", name)


# -- proxies


def proxy_of(url: str) -> str | None:
    """Its URL, None: `url` is asked directly. Misconfigured: a variable names none."""
    parts = urlsplit(url)
    for variable in (f"{parts.scheme}_proxy", "all_proxy"):
        if variable == "http_proxy" and "REQUEST_METHOD" in os.environ:  # of a CGI program: a header of its client
            continue
        name, proxy = _variable(variable)
        if proxy:
            return None if _is_near(parts) else _check_proxy(name, proxy)
    return None


def has_proxies() -> bool:
    """Whether the environment names a proxy for any protocol."""
    return any(_variable(variable)[1] for variable in ("http_proxy", "https_proxy", "all_proxy"))


def connection(url: str, timeout_s: float) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """A connection for one request to `url`, its target and its headers. The request fails
    (OSError) if the proxy needs TLS, which http.client cannot use inside TLS. Misconfigured."""
    parts, proxy = urlsplit(url), proxy_of(url)
    by = parts if proxy is None else urlsplit(proxy)
    host, port = by.hostname or "", by.port or _PORTS[by.scheme]
    if proxy is not None and by.scheme == "https":
        return _Unconnected(host, port), url, {}
    headers = {} if proxy is None else _authorization(by)
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s), url if proxy else parts.path or "/", headers
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context)
    found = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    if proxy is not None:
        found.set_tunnel(parts.hostname or "", parts.port or 443, headers)
    return found, parts.path or "/", {}


class _Unconnected(http.client.HTTPConnection):
    def connect(self) -> None:
        raise OSError("nothing is asked through this proxy")


def _variable(name: str) -> tuple[str, str]:
    """In which case it is set, and its value, "" if in none."""
    return next(((each, value) for each in (name, name.upper()) if (value := os.environ.get(each))), (name, ""))


def _check_proxy(variable: str, proxy: str) -> str:
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(proxy)
        if parts.scheme in _PORTS and parts.hostname and parts.port != 0:
            return proxy
    except ValueError:
        pass
    raise Misconfigured(
        "this is no proxy that can be used, such as http://HOST:PORT", variable
    )  # it may hold a password


def _is_near(parts: SplitResult) -> bool:
    """Whether no_proxy names it: a host with all below it, an address or a network; with a port or
    without; "*" names all."""
    host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS[parts.scheme]
    for entry in _variable("no_proxy")[1].replace(",", " ").lower().split():
        name, _, number = entry.rpartition(":")
        if number.isdecimal() and (":" not in name or name.endswith("]")):
            if int(number) != port:
                continue
            entry = name
        entry = entry.strip("[]")
        if entry == "*" or _is_in(host, entry) or f".{host}".endswith("." + entry.removeprefix("*").strip(".")):
            return True
    return False


def _is_in(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    given = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(given.encode()).decode()}"}
